"""session.*: does the graph load, and on the provider that was asked for?"""

from __future__ import annotations

from onnxport.verify.errors import ProviderError
from onnxport.verify.inspection import Inspection, without_folder
from onnxport.verify.report import CheckResult, Verdict
from onnxport.verify.runners import OrtRunner

# Devices leave these to the CPU on purpose where they compute shapes and indices.
_SHAPE_OPS = frozenset({
    "Add", "And", "Cast", "Concat", "ConstantOfShape", "Div", "Equal", "Expand", "Gather", "Greater", "Identity",
    "Less", "Mod", "Mul", "Not", "Or", "Range", "ReduceProd", "Reshape", "Shape", "Size", "Slice", "Squeeze", "Sub",
    "Unsqueeze", "Where",
})  # fmt: skip


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
    """The session runs on the provider that was asked for, and so does every node that computes more than shapes."""
    if isinstance(inspection.load_error, ProviderError):
        return [inspection.result("session.provider", "fail", str(inspection.load_error))]
    asked, used = inspection.subject.provider, inspection.runner.provider
    detail = f"runs on {used}, asked for {asked}"
    placed = _placed(inspection.runner)
    elsewhere = {provider: ops for provider, ops in placed.items() if provider != asked}
    fallen = [op for ops in elsewhere.values() for op in ops if op not in _SHAPE_OPS]
    if placed:
        detail += f"; nodes: {', '.join(f'{len(ops)} on {provider}' for provider, ops in sorted(placed.items()))}"
    if fallen:
        detail += f"; not on {asked}: {', '.join(sorted(set(fallen)))}"
    verdict: Verdict = "fail" if used != asked or fallen or (placed and asked not in placed) else "pass"
    return [inspection.result("session.provider", verdict, detail)]


def _placed(runner: OrtRunner) -> dict[str, list[str]]:
    """Returns provider to the operators of the nodes it was given; empty where this ONNX Runtime does not tell."""
    tell = getattr(runner.session, "get_provider_graph_assignment_info", None)
    placed: dict[str, list[str]] = {}
    for part in tell() if tell is not None else ():
        placed.setdefault(part.ep_name, []).extend(node.op_type for node in part.get_nodes())
    return placed


def _options(inspection: Inspection) -> str:
    options = inspection.subject.session_options
    return ", ".join(f"{key}={options[key]}" for key in sorted(options)) or "default session options"
