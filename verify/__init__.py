"""Are two runners the same function? numpy, onnx and onnxruntime only; knows nothing of Hugging Face.

Importing this package is cheap: ONNX Runtime loads when a session is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxport.verify.cases import Case as Case
    from onnxport.verify.contract import AxisRange as AxisRange
    from onnxport.verify.contract import GraphContract as GraphContract
    from onnxport.verify.contract import TensorSpec as TensorSpec
    from onnxport.verify.golden import load_golden as load_golden
    from onnxport.verify.golden import save_golden as save_golden
    from onnxport.verify.golden import select_golden as select_golden
    from onnxport.verify.latency import measure_latency as measure_latency
    from onnxport.verify.report import CheckResult as CheckResult
    from onnxport.verify.report import Latency as Latency
    from onnxport.verify.report import Report as Report
    from onnxport.verify.runners import OrtRunner as OrtRunner
    from onnxport.verify.runners import Recorded as Recorded
    from onnxport.verify.runners import Runner as Runner
    from onnxport.verify.subject import Subject as Subject
    from onnxport.verify.tolerance import ElementTolerance as ElementTolerance
    from onnxport.verify.tolerance import Statistics as Statistics
    from onnxport.verify.tolerance import Tolerance as Tolerance
    from onnxport.verify.verification import verify as verify
    from onnxport.verify.verification import verify_files as verify_files
    from onnxport.verify.verification import verify_subject as verify_subject

_PUBLIC = {
    "AxisRange": "onnxport.verify.contract",
    "Case": "onnxport.verify.cases",
    "CheckResult": "onnxport.verify.report",
    "ElementTolerance": "onnxport.verify.tolerance",
    "GraphContract": "onnxport.verify.contract",
    "Latency": "onnxport.verify.report",
    "OrtRunner": "onnxport.verify.runners",
    "Recorded": "onnxport.verify.runners",
    "Report": "onnxport.verify.report",
    "Runner": "onnxport.verify.runners",
    "Statistics": "onnxport.verify.tolerance",
    "Subject": "onnxport.verify.subject",
    "TensorSpec": "onnxport.verify.contract",
    "Tolerance": "onnxport.verify.tolerance",
    "load_golden": "onnxport.verify.golden",
    "measure_latency": "onnxport.verify.latency",
    "save_golden": "onnxport.verify.golden",
    "select_golden": "onnxport.verify.golden",
    "verify": "onnxport.verify.verification",
    "verify_files": "onnxport.verify.verification",
    "verify_subject": "onnxport.verify.verification",
}
__all__ = [
    "AxisRange",
    "Case",
    "CheckResult",
    "ElementTolerance",
    "GraphContract",
    "Latency",
    "OrtRunner",
    "Recorded",
    "Report",
    "Runner",
    "Statistics",
    "Subject",
    "TensorSpec",
    "Tolerance",
    "load_golden",
    "measure_latency",
    "save_golden",
    "select_golden",
    "verify",
    "verify_files",
    "verify_subject",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)
