"""Many comparisons, one result: the worst number of each kind, and in words where it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onnxport.verify.compare import Comparison
from onnxport.verify.report import Verdict


@dataclass(frozen=True)
class Located:
    """A comparison, and where it was made ("row 1 alone")."""

    where: str
    comparison: Comparison


@dataclass(frozen=True)
class Worst:
    """What many comparisons show together. `numbers` are fields of CheckResult."""

    verdict: Verdict
    detail: str
    numbers: dict[str, Any]


def worst_of(found: Sequence[Located]) -> Worst:
    """Judges comparisons together: one that does not agree is a failure, and so is none at all."""
    if not found:
        return Worst("fail", "nothing was compared", {})
    comparisons = [one.comparison for one in found]
    disagreeing = [one for one in found if not one.comparison.agrees]
    worst = max(disagreeing or found, key=lambda one: _badness(one.comparison))
    tolerance = worst.comparison.tolerance
    numbers = {
        "compared": sum(c.compared or 0 for c in comparisons),
        "max_abs_diff": _extreme(max, [c.max_abs_diff for c in comparisons]),
        "max_rel_diff": _extreme(max, [c.max_rel_diff for c in comparisons]),
        "worst_ratio": _extreme(max, [c.worst_ratio for c in comparisons]),
        "min_cosine": _extreme(min, [c.min_cosine for c in comparisons]),
        "rms_error": _extreme(max, [c.rms_error for c in comparisons]),
        "sqnr_db": _extreme(min, [c.sqnr_db for c in comparisons]),
        "p99_error": _extreme(max, [c.p99_error for c in comparisons]),
        "argmax_agreement": _extreme(min, [c.argmax_agreement for c in comparisons]),
        "topk_agreement": _extreme(min, [c.topk_agreement for c in comparisons]),
        "rtol": tolerance.rtol if tolerance else None,
        "atol": tolerance.atol if tolerance else None,
    }
    detail = f"{worst.where}, {worst.comparison.output}: {worst.comparison.detail}"
    if disagreeing:
        return Worst("fail", f"{len(disagreeing)} of {len(found)} outputs differ; worst: {detail}", numbers)
    return Worst("pass", f"{len(found)} outputs agree; worst: {detail}", numbers)


def _badness(comparison: Comparison) -> tuple[float, float]:
    return (comparison.worst_ratio or 0.0, -(1.0 if comparison.min_cosine is None else comparison.min_cosine))


def _extreme(choose: Any, numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return choose(known) if known else None
