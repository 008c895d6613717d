"""session.*: does the graph load, and on the provider that was asked for?"""

from __future__ import annotations

from onnxport.verify.errors import ProviderError
from onnxport.verify.inspection import Inspection, without_folder
from onnxport.verify.report import CheckResult, Verdict


def check_loads(inspection: Inspection) -> list[CheckResult]:
    """ONNX Runtime opens the file with the subject's session options."""
    error = inspection.load_error
    if isinstance(error, ProviderError):
        return [inspection.result("session.loads", "skip", "not tried: the provider is not there (session.provider)")]
    if error is not None:
        detail = without_folder(str(error), inspection.subject.path)
        return [inspection.result("session.loads", "fail", detail)]
    return [inspection.result("session.loads", "pass", f"loads with {_options(inspection)}")]


def check_provider(inspection: Inspection) -> list[CheckResult]:
    """The session runs on the provider that was asked for."""
    if isinstance(inspection.load_error, ProviderError):
        return [inspection.result("session.provider", "fail", str(inspection.load_error))]
    asked, used = inspection.subject.provider, inspection.runner.provider
    verdict: Verdict = "pass" if used == asked else "fail"
    return [inspection.result("session.provider", verdict, f"runs on {used}, asked for {asked}")]


def _options(inspection: Inspection) -> str:
    options = inspection.subject.session_options
    return ", ".join(f"{key}={options[key]}" for key in sorted(options)) or "default session options"
