"""The checks. Adding one is a function in a file of its family and a line here; importing registers nothing."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxport.verify.report import CheckResult

CHECKS: dict[str, str] = {
    "files.sha256": "onnxport.verify.checks.files:check_sha256",
    "graph.checker": "onnxport.verify.checks.graph:check_checker",
    "graph.opset": "onnxport.verify.checks.graph:check_opset",
    "graph.names": "onnxport.verify.checks.graph:check_names",
    "graph.axes": "onnxport.verify.checks.graph:check_axes",
    "session.loads": "onnxport.verify.checks.session:check_loads",
    "session.provider": "onnxport.verify.checks.session:check_provider",
    "outputs.match": "onnxport.verify.checks.outputs:check_match",
    "outputs.finite": "onnxport.verify.checks.outputs:check_finite",
    "outputs.sensitive": "onnxport.verify.checks.outputs:check_sensitive",
    "golden.match": "onnxport.verify.checks.golden:check_match",
    "fusion.expected": "onnxport.verify.checks.fusion:check_expected",
}
"""Stable id to "module:function". `files.*` take a folder and its records, `outputs.*` and `golden.*` a Trial, all
others an Inspection."""


def load_check(check: str) -> Callable[..., list[CheckResult]]:
    """Returns the function behind an id of `CHECKS`."""
    module, function = CHECKS[check].split(":")
    found: Callable[..., list[CheckResult]] = getattr(import_module(module), function)
    return found
