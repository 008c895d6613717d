"""fusion.*: are the fused operators in the file?"""

from __future__ import annotations

from collections.abc import Mapping

from onnxport.verify.inspection import Inspection
from onnxport.verify.report import CheckResult

_CONTRIB = "com.microsoft"
_ONNX = "ai.onnx"


def check_expected(inspection: Inspection) -> list[CheckResult]:
    """The file has at least the required nodes, and exactly those that were recorded. One result per operator."""
    subject = inspection.subject
    if not subject.required_fusions and not subject.fusions:
        return [inspection.result("fusion.expected", "skip", "no fusion is required or recorded")]
    ops = inspection.facts.ops
    results = []
    for op, least in sorted(subject.required_fusions.items()):
        key = _key(op, ops)
        count = ops.get(key, 0)
        detail = f"{count} nodes of {key} in the file, at least {least} required"
        results.append(inspection.result("fusion.expected", "pass" if count >= least else "fail", detail))
    for op, recorded in sorted(subject.fusions.items()):
        key = _key(op, ops)
        count = ops.get(key, 0)
        detail = f"{count} nodes of {key} in the file, {recorded} recorded"
        results.append(inspection.result("fusion.expected", "pass" if count == recorded else "fail", detail))
    return results


def _key(op: str, ops: Mapping[str, int]) -> str:
    """Returns "domain:op". Without a domain: ONNX Runtime's own operators come first, the ONNX domain after them."""
    if ":" in op:
        return op
    return f"{_ONNX}:{op}" if f"{_CONTRIB}:{op}" not in ops and f"{_ONNX}:{op}" in ops else f"{_CONTRIB}:{op}"
