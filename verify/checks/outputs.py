"""outputs.*: does the candidate give what the reference gives, and could it have failed?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from onnxport.verify.compare import Comparison
from onnxport.verify.noise_floor import Noise, looseness
from onnxport.verify.report import CheckResult
from onnxport.verify.tolerance import ElementTolerance, Statistics, Tolerance
from onnxport.verify.trial import Trial

_PERCENTILE_FIELDS = {50.0: "p50_abs_diff", 90.0: "p90_abs_diff", 99.0: "p99_abs_diff", 99.9: "p99_9_abs_diff"}


def check_match(trial: Trial) -> list[CheckResult]:
    """Every output of every case meets the criterion. One result per case and output."""
    return match_results("outputs.match", trial)


def check_finite(trial: Trial) -> list[CheckResult]:
    """No output has NaN or Inf where the reference has none. One result per output, over all cases."""
    results = []
    for output, found in _by_output(trial).items():
        bad = [(case, c.unexpected_nonfinite) for case, c in found if c.unexpected_nonfinite]
        compared = sum(c.compared or 0 for _, c in found)
        if bad:
            where = ", ".join(f"{count} elements in {case}" for case, count in bad)
            detail = f"NaN or Inf where the reference has none: {where}"
            results.append(trial.result("outputs.finite", "fail", detail, output=output, compared=compared))
        elif compared:
            detail = f"no NaN or Inf that the reference does not have, in {len(found)} cases"
            results.append(trial.result("outputs.finite", "pass", detail, output=output, compared=compared))
        else:
            results.append(trial.result("outputs.finite", "skip", "no values came to be compared", output=output))
    return results or [trial.result("outputs.finite", "skip", "the candidate ran on no case")]


def check_sensitive(trial: Trial) -> list[CheckResult]:
    """The comparison could have failed, as the reference is larger than what is allowed. One result per output.

    Fails where a candidate of zeros would pass, or where the reference's RMS is below atol.
    """
    results = []
    for output, found in _by_output(trial).items():
        count = sum(c.reference_count for _, c in found)
        if not count:
            if any(c.compared for _, c in found):
                detail = "the reference has no finite value: whatever is NaN or Inf would pass"
                results.append(trial.result("outputs.sensitive", "fail", detail, output=output, compared=0))
            continue  # else an output that only the candidate has, or of no real element: outputs.match fails
        squares = sum((c.reference_rms or 0.0) ** 2 * c.reference_count for _, c in found)
        rms, largest = math.sqrt(squares / count), max(c.reference_max_abs or 0.0 for _, c in found)
        allowed = next((c.tolerance for _, c in found if c.tolerance is not None), None)
        problem = _insensitive(trial, output, rms, largest, allowed)
        size = f"the reference has RMS {rms:.3g} and at most {largest:.3g} in {count} elements, {len(found)} cases"
        results.append(
            trial.result(
                "outputs.sensitive",
                "fail" if problem else "pass",
                f"{problem}: {size}" if problem else size,
                output=output,
                reference_rms=rms,
                compared=count,
                **_thresholds(trial, allowed),
            )
        )
    return results or [trial.result("outputs.sensitive", "skip", "the candidate ran on no case")]


def match_results(check: str, trial: Trial) -> list[CheckResult]:
    """Returns one result per case and output under the id `check`, one per case on which the candidate failed, and one
    per output that decides, over all cases: a case has too few decisions to judge a share by."""
    results = []
    for outcome in trial.outcomes:
        if outcome.failure is not None:
            results.append(trial.result(check, "fail", outcome.failure, case=outcome.case))
        for c in outcome.comparisons:
            noise = outcome.noise.get(c.output)
            results.append(
                trial.result(
                    check,
                    "pass" if c.agrees else "fail",
                    c.detail + _note(c, noise),
                    case=outcome.case,
                    output=c.output,
                    compared=c.compared,
                    max_abs_diff=c.max_abs_diff,
                    max_rel_diff=c.max_rel_diff,
                    worst_ratio=c.worst_ratio,
                    reference_rms=c.reference_rms,
                    padded_max_abs_diff=c.padded_max_abs_diff,
                    min_cosine=c.min_cosine,
                    rms_error=c.rms_error,
                    sqnr_db=c.sqnr_db,
                    **{_PERCENTILE_FIELDS[percent]: value for percent, value in c.abs_diff_percentiles.items()},
                    p99_error=c.p99_error,
                    argmax_agreement=c.argmax_agreement,
                    topk_agreement=c.topk_agreement,
                    noise_floor=noise.floor if noise else None,
                    floor_ratio=noise.ratio if noise else None,
                    **_thresholds(trial, c.tolerance),
                )
            )
    return results + list(_pooled_decisions(check, trial))


def _pooled_decisions(check: str, trial: Trial) -> Iterator[CheckResult]:
    wanted = trial.criterion
    if not isinstance(wanted, Statistics):
        return
    for output, found in _by_output(trial).items():
        total = sum(c.decisions for _, c in found)
        if not total:
            continue
        kept = round(sum((c.argmax_agreement or 0) * c.decisions for _, c in found))
        entries = sum(c.top_entries for _, c in found)
        top = round(sum((c.topk_agreement or 0) * c.top_entries for _, c in found))
        details = [f"{kept} of {total} decisions kept, in {len(found)} cases"]
        if entries:
            details.append(f"{top} of the {entries} entries in a top {wanted.top_k} kept")
        lost = kept < wanted.min_argmax_agreement * total
        if lost:
            details.append(f"wanted at least {wanted.min_argmax_agreement:.4g} of the decisions (min_argmax_agreement)")
        top_lost = top < wanted.min_topk_agreement * entries
        if top_lost:
            told = f"wanted at least {wanted.min_topk_agreement:.4g} of the top {wanted.top_k}"
            details.append(f"{told} (min_topk_agreement)")
        yield trial.result(
            check,
            "fail" if lost or top_lost else "pass",
            "; ".join(details),
            output=output,
            argmax_agreement=kept / total,
            topk_agreement=top / entries if entries else None,
            **_thresholds(trial, None),
        )


def _note(comparison: Comparison, noise: Noise | None) -> str:
    """What is allowed has a reason only as far as it is near the noise. Too much of it fails nothing, and is said."""
    if noise is None or comparison.tolerance is None:
        return ""
    times = looseness(comparison.tolerance, comparison.reference_rms or 0.0, noise.floor)
    return "" if times is None else f"; note: the tolerance is loose, {times:.3g} times the noise floor"


def _by_output(trial: Trial) -> dict[str, list[tuple[str, Comparison]]]:
    found: dict[str, list[tuple[str, Comparison]]] = {}
    for outcome in trial.outcomes:
        for comparison in outcome.comparisons:
            found.setdefault(comparison.output, []).append((outcome.case, comparison))
    return found


def _insensitive(trial: Trial, output: str, rms: float, largest: float, allowed: ElementTolerance | None) -> str | None:
    """Returns why no candidate could have failed, or None."""
    criterion = trial.criterion
    if allowed is None and isinstance(criterion, Tolerance):
        allowed = criterion.of(output)  # it did not come to values
    if allowed is not None:
        if largest <= allowed.atol + allowed.rtol * largest:
            return f"zeros would pass with rtol {allowed.rtol:g} and atol {allowed.atol:g}"
        return f"the reference is below atol {allowed.atol:g}" if rms < allowed.atol else None
    assert isinstance(criterion, Statistics)
    if largest == 0.0:
        return "the reference is zero, and a direction cannot be compared"
    # Percentiles save nothing here: they are blind where what is large is less than one element in a hundred.
    if criterion.min_cosine <= 0.0 and criterion.max_rms_error >= 1.0 and criterion.min_sqnr_db <= 0.0:
        return f"zeros would pass with cosine {criterion.min_cosine:g} and RMS error {criterion.max_rms_error:g}"
    return None


def _thresholds(trial: Trial, tolerance: ElementTolerance | None) -> dict[str, Any]:
    """Returns the criterion in the fields of CheckResult."""
    if tolerance is not None:
        return {"rtol": tolerance.rtol, "atol": tolerance.atol}
    if isinstance(trial.criterion, Statistics):
        return {
            "min_cosine_allowed": trial.criterion.min_cosine,
            "max_rms_error_allowed": trial.criterion.max_rms_error,
            "min_sqnr_db_allowed": trial.criterion.min_sqnr_db,
            "max_p99_error_allowed": trial.criterion.max_p99_error,
            "min_argmax_agreement_allowed": trial.criterion.min_argmax_agreement,
            "top_k": trial.criterion.top_k,
            "min_topk_agreement_allowed": trial.criterion.min_topk_agreement,
        }
    return {}
