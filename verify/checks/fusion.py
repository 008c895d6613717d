"""fusion.*: are the fused operators in the file?"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from onnxport.verify.inspection import Inspection
from onnxport.verify.report import CheckResult

_CONTRIB = "com.microsoft"
_ONNX = "ai.onnx"

NOTHING_TO_EXPECT = "no fusion is required or recorded"


def check_expected(inspection: Inspection) -> list[CheckResult]:
    """The nodes that were required and those that were recorded are in the file. One result per operator.

    Recorded are the nodes that fusion brought. Operators of ONNX Runtime's own domains come from nowhere else, so the
    file has exactly as many; of operators that ONNX has too, the graph may have had some before.
    """
    subject = inspection.subject
    if not subject.required_fusions and not subject.fusions:
        return [inspection.result("fusion.expected", "skip", NOTHING_TO_EXPECT)]
    ops = inspection.facts.ops
    results = []
    for op, least in sorted(subject.required_fusions.items()):
        key = _key(op, ops)
        count = ops.get(key, 0)
        detail = f"{count} nodes of {key} in the file, at least {least} required"
        if count < least:
            detail += _present(op, ops)
        results.append(inspection.result("fusion.expected", "pass" if count >= least else "fail", detail))
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


def _present(op: str, ops: Mapping[str, int]) -> str:
    """What there is instead, for a person who misspelt a name or expects a fusion of another kind."""
    fused = {key.partition(":")[2]: count for key, count in sorted(ops.items()) if key.startswith(f"{_CONTRIB}:")}
    if not fused:
        return f"; it has no operator of {_CONTRIB}: nothing was fused"
    name = op.rpartition(":")[2]
    near = get_close_matches(name, fused, n=1) if name not in fused else []
    guess = f"; did you mean {near[0]!r}?" if near else ""
    return f"; it has {', '.join(f'{count} {name}' for name, count in fused.items())}{guess}"
