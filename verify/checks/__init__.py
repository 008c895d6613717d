"""The checks. Adding one is a function in a file of its family and a line here; importing registers nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from onnxport.verify.import_target import import_target

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
    "outputs.sensitive/power": "onnxport.verify.checks.power:check_power",
    "golden.match": "onnxport.verify.checks.golden:check_match",
    "fusion.expected": "onnxport.verify.checks.fusion:check_expected",
    "rows.independent": "onnxport.verify.checks.rows:check_independent",
    "padding.invariant": "onnxport.verify.checks.padding_invariance:check_invariant",
    "iobinding.match": "onnxport.verify.checks.iobinding:check_match",
    "inputs.rejected": "onnxport.verify.checks.rejection:check_rejected",
    "levels.match": "onnxport.verify.checks.levels:check_match",
    "reload.match": "onnxport.verify.checks.reload:check_match",
    "tokenizer.match": "onnxport.verify.checks.tokenizer:check_match",
    "metric.kept": "onnxport.verify.checks.metric_kept:check_kept",
}
"""Stable id to "module:function"; "id/part" is a further question whose results are filed under the id (`filed_under`).

What they take: `files.*` a folder and its records, `tokenizer.*` a file and what was recorded of it, `metric.*` scores,
`graph.*`, `session.*` and `fusion.*` an Inspection, `outputs.*` and `golden.*` a Trial, all others and every part a
Probe."""


def filed_under(check: str) -> str:
    """Returns the id that the results of a line of `CHECKS` carry."""
    return check.partition("/")[0]


def load_check(check: str) -> Callable[..., list[CheckResult]]:
    """Returns the function behind an id of `CHECKS`."""
    found: Callable[..., list[CheckResult]] = import_target(CHECKS[check])
    return found
