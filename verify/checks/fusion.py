"""fusion.*: are the fused operators in the file?"""

from __future__ import annotations

from collections.abc import Mapping

from onnxport.verify.inspection import Inspection
from onnxport.verify.report import CheckResult

_CONTRIB = "com.microsoft"
_ONNX = "ai.onnx"


def check_expected(inspection: Inspection) -> list[CheckResult]:
    """The nodes that were required and those that were recorded are in the file. One result per operator.

    Recorded are the nodes that fusion brought. Operators of ONNX Runtime's own domains come from nowhere else, so the
    file has exactly as many; of operators that ONNX has too, the graph may have had some before.
    """
    subject = inspection.subject
    if not subject.required_fusions and not subject.fusions:
        return [inspection.result("fusion.expected", "skip", "no fusion is required or recorded")]
    ops = inspection.facts.ops
    results = []
    for op, least in sorted(subject.required_fusions.items()):
        key = _key(op, ops)
        detail = f"{ops.get(key, 0)} nodes of {key} in the file, at least {least} required"
        results.append(inspection.result("fusion.expected", "pass" if ops.get(key, 0) >= least else "fail", detail))
    for op, recorded in sorted(subject.fusions.items()):
        key = _key(op, ops)
        count = ops.get(key, 0)
        kept = count >= recorded if key.startswith(f"{_ONNX}:") else count == recorded
        detail = f"{count} nodes of {key} in the file, {recorded} recorded"
        results.append(inspection.result("fusion.expected", "pass" if kept else "fail", detail))
    return results


def _key(op: str, ops: Mapping[str, int]) -> str:
    """Returns "domain:op". Without a domain: ONNX Runtime's own operators come first, the ONNX domain after them."""
    if ":" in op:
        return op
    return f"{_ONNX}:{op}" if f"{_CONTRIB}:{op}" not in ops and f"{_ONNX}:{op}" in ops else f"{_CONTRIB}:{op}"
