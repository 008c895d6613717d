from __future__ import annotations

import subprocess
import sys

import pytest

import onnxport.verify

PUBLIC = [
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


def test_public_names() -> None:
    assert onnxport.verify.__all__ == PUBLIC
    for name in PUBLIC:
        assert getattr(onnxport.verify, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = onnxport.verify.nothing_like_it


def _modules_after(code: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in run.stdout.split()} | set(run.stdout.split())


def test_importing_the_room_is_cheap() -> None:
    loaded = _modules_after("import onnxport.verify")
    assert "onnxport.verify" in loaded
    assert not loaded & {"torch", "transformers", "onnxruntime", "onnx", "numpy", "pydantic"}


def test_the_room_needs_neither_torch_nor_the_exporters() -> None:
    loaded = _modules_after(
        "import pkgutil, importlib, onnxport.verify as room\n"
        "for module in pkgutil.walk_packages(room.__path__, 'onnxport.verify.'): importlib.import_module(module.name)"
    )
    assert {"onnxport.verify.verification", "onnxport.verify.checks.graph"} <= loaded
    assert not loaded & {"torch", "transformers", "onnxruntime", "onnxport.exporters"}
