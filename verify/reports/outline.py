"""What a reader looks for in a report, in the order they look for it: verdict, failures, sections, numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnxport.verify.reports.printable import single_line

if TYPE_CHECKING:
    from onnxport.verify.report import CheckResult, Report
    from onnxport.verify.tolerance import Statistics, Tolerance

WHOLE_BUNDLE = "bundle"
"""Title of the section of checks that concern no single variant."""

ALL_CASES = "all cases"
"""What stands for the case of a check that takes the decisions of all cases together."""

_FIRST = ("base", "optimized")
_AGAINST_REFERENCE = ("outputs.match", "golden.match")
_NOT_NUMBERS = frozenset({"id", "component", "variant", "case", "output", "verdict", "detail"})


@dataclass(frozen=True)
class Section:
    """The checks of one variant of one component, or those of the bundle as a whole (both None)."""

    component: str | None
    variant: str | None
    title: str
    checks: tuple[CheckResult, ...]


def sections(report: Report) -> list[Section]:
    """Returns the bundle's own checks first, then component by component: base, optimized, the others by name."""
    found: dict[tuple[str | None, str | None], list[CheckResult]] = {}
    for check in report.checks:
        found.setdefault((check.component, check.variant), []).append(check)
    several = len({component for component, _ in found if component}) > 1

    def title(component: str | None, variant: str | None) -> str:
        parts = (component if several or not variant else None, variant)
        return " / ".join(part for part in parts if part) or WHOLE_BUNDLE

    ordered = sorted(found, key=lambda place: (place[0] or "", _variant_order(place[1])))
    return [Section(*place, title(*place), tuple(found[place])) for place in ordered]


def problem(report: Report) -> str | None:
    """Returns why the verdict is "fail" although no check failed; None if a check did, or the verdict is "pass"."""
    if report.verdict == "pass" or any(check.verdict == "fail" for check in report.checks):
        return None
    return report.detail or "the verdict is fail, and no check says why"


def family(check: CheckResult) -> str:
    """`outputs` of `outputs.match`."""
    return check.id.partition(".")[0]


def together(checks: Sequence[CheckResult]) -> str:
    """One verdict for several: a failure shows, a pass outweighs a skip, nothing is nothing."""
    verdicts = {check.verdict for check in checks}
    return next((verdict for verdict in ("fail", "pass", "skip") if verdict in verdicts), "")


def name_of(report: Report) -> str | None:
    """Returns what tells this report from those of other models; None if the report does not say what it is of."""
    return None if report.subject is None else report.subject.name or report.subject.model


def subject_of(report: Report) -> list[str]:
    """Returns what was verified, from the name to the versions; nothing if the report does not say.

    ["out", "all-MiniLM-L6-v2", "BertModel", "sentence-similarity", "engine torchscript", "suite full", "torch 2.9.1"]
    """
    known = report.subject
    if known is None:
        return []
    named = {"engine": known.engine, "suite": known.suite, **dict(sorted(known.versions.items()))}
    told = [known.name, known.model, known.architecture, known.task]
    told += [f"{name} {value}" if value else None for name, value in named.items()]
    return list(dict.fromkeys(part for part in told if part))


def judges_decisions(check: CheckResult) -> bool:
    """Whether the verdict of a check rests on the decisions that were kept.

    A comparison of values, which has its cosine, only tells of its own: they are judged over all cases together.
    """
    return check.min_cosine is None


def case_of(check: CheckResult) -> str | None:
    """Returns what the check was put to: a case, or all of them where their decisions are taken together."""
    if check.case is None and check.argmax_agreement is not None and judges_decisions(check):
        return ALL_CASES
    return check.case


def allowance_used(check: CheckResult) -> float | None:
    """How much of the allowed error a check found: up to 1 passes, NaN is infinite. None if it measured no error.

    `worst_ratio` where elements were judged. For statistics the same question is put to each threshold: how far from
    perfect, over how far is allowed; the largest answer counts.
    """
    if check.worst_ratio is not None:
        return math.inf if math.isnan(check.worst_ratio) else check.worst_ratio
    shares: tuple[float | None, ...] = (
        _share(check.min_cosine, check.min_cosine_allowed, best=1.0),
        _share(check.rms_error, check.max_rms_error_allowed, best=0.0),
        _share(_amplitude(check.sqnr_db), _amplitude(check.min_sqnr_db_allowed), best=0.0),
        _share(check.p99_error, check.max_p99_error_allowed, best=0.0),
        _share(_lost(check.score_loss), check.max_score_loss_allowed, best=0.0),
    )
    if judges_decisions(check):
        shares += (
            _share(check.argmax_agreement, check.min_argmax_agreement_allowed, best=1.0),
            _share(check.topk_agreement, check.min_topk_agreement_allowed, best=1.0),
        )
    known = [share for share in shares if share is not None]
    return max(known) if known else None


def worst(checks: Sequence[CheckResult]) -> float | None:
    """Returns the largest `allowance_used`; None if no check measured an error."""
    return max((used for check in checks if (used := allowance_used(check)) is not None), default=None)


@dataclass(frozen=True)
class Failed:
    """The failures of one kind of check in one section, the worst first, out of `put` checks of that kind."""

    section: Section
    id: str
    checks: tuple[CheckResult, ...]
    put: int


def told_first(check_id: str) -> tuple[bool, str]:
    """Sorts ids of checks: those of the outputs, then the others by name."""
    return check_id not in _AGAINST_REFERENCE, check_id


def failures(found: Sequence[Section]) -> list[Failed]:
    """Returns everything that failed, kind by kind; in a section the outputs first, which explain most of the rest."""
    result = []
    for section in found:
        for check_id in sorted({check.id for check in section.checks}, key=told_first):
            put = [check for check in section.checks if check.id == check_id]
            failed = [check for check in put if check.verdict == "fail"]
            if failed:
                ordered = tuple(sorted(failed, key=_badness, reverse=True))
                result.append(Failed(section, check_id, ordered, len(put)))
    return result


def reasons(checks: Sequence[CheckResult]) -> dict[str, list[str]]:
    """Returns reason to the ids of the checks that were skipped for it, each named once.

    A detail of the form "what: reason" is taken apart where that reason is given for several things.

    {"not measured": ["rows.independent (rows.alone, rows.reordered)", "padding.invariant (padding.left)"]}
    """
    skipped = [(check.id, *check.detail.partition(": ")[::2]) for check in checks if check.verdict == "skip"]
    shared: dict[str, set[str]] = {}
    for _, what, reason in skipped:
        shared.setdefault(reason, set()).add(what)
    found: dict[str, dict[str, dict[str, None]]] = {}
    for check_id, what, reason in skipped:
        if reason and len(shared[reason]) > 1:
            found.setdefault(reason, {}).setdefault(check_id, {})[what] = None
        else:
            found.setdefault(f"{what}: {reason}" if reason else what, {}).setdefault(check_id, {})
    return {
        reason: [f"{check_id} ({', '.join(parts)})" if parts else check_id for check_id, parts in ids.items()]
        for reason, ids in found.items()
    }


def numbers(check: CheckResult) -> dict[str, Any]:
    """Returns every number that the check carries, by its name in report.json."""
    fields = {name: getattr(check, name) for name in type(check).model_fields if name not in _NOT_NUMBERS}
    return {name: value for name, value in fields.items() if value is not None}


def counts(report: Report) -> str:
    """ "120 passed, 3 failed, 5 skipped"."""
    return f"{report.summary.passed} passed, {report.summary.failed} failed, {report.summary.skipped} skipped"


def allowed(report: Report) -> list[str]:
    """Returns what was allowed, each a sentence without its full stop: one, or one for each group of variants.

    "allowed in base, optimized: |difference| <= 0.0001 + 0.001 * |reference|"
    """
    found: dict[str, dict[str, None]] = {}
    for section in sections(report):
        for check in section.checks:
            used = _criterion_used(check, report.tolerance) if check.id in _AGAINST_REFERENCE else None
            if used is not None:
                found.setdefault(used, {})[section.title] = None
    if len(found) > 1:
        return [f"allowed in {', '.join(titles)}: {formula}" for formula, titles in found.items()]
    return [f"allowed: {next(iter(found), _formula(report.tolerance))}"]


def loose(report: Report) -> list[str]:
    """Returns a sentence, without its full stop, for each group of variants that are allowed far more than noise.

    "loose in fp16: up to 2e+04 times the noise floor"
    """
    from onnxport.verify.noise_floor import looseness
    from onnxport.verify.tolerance import ElementTolerance

    worst_of: dict[str, float] = {}
    for section in sections(report):
        for check in section.checks:
            if check.noise_floor is None or check.rtol is None or check.atol is None:
                continue
            tolerance = ElementTolerance(rtol=check.rtol, atol=check.atol)
            times = looseness(tolerance, check.reference_rms or 0.0, check.noise_floor)
            if times is not None:
                worst_of[section.title] = max(times, worst_of.get(section.title, 0.0))
    found: dict[str, list[str]] = {}
    for title, times in worst_of.items():
        found.setdefault(f"{times:.2g}", []).append(title)
    return [f"loose in {', '.join(titles)}: up to {times} times the noise floor" for times, titles in found.items()]


def flattened(tolerance: Tolerance | Statistics) -> dict[str, str]:
    """Returns every value of the criterion by its dotted name ("per_output.logits.rtol")."""

    def walk(value: Any, name: str) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict):
            for key in sorted(value):
                yield from walk(value[key], f"{name}.{key}" if name else key)
        else:
            yield name, f"{value:g}" if isinstance(value, float) else single_line(str(value))

    return dict(walk(tolerance.model_dump(), ""))


def _variant_order(variant: str | None) -> tuple[int, str]:
    if variant is None:
        return -1, ""
    return (_FIRST.index(variant), "") if variant in _FIRST else (len(_FIRST), variant)


def _criterion_used(check: CheckResult, asked: Tolerance | Statistics) -> str | None:
    """Returns the formula that a check was judged by; where it is the one asked for, with the exceptions from it."""
    from onnxport.verify.tolerance import Statistics

    if check.min_cosine_allowed is not None:
        return _statistics(
            min_cosine=check.min_cosine_allowed,
            max_rms_error=check.max_rms_error_allowed,
            min_sqnr_db=check.min_sqnr_db_allowed,
            max_p99_error=check.max_p99_error_allowed,
            min_argmax_agreement=check.min_argmax_agreement_allowed,
            top_k=check.top_k,
            min_topk_agreement=check.min_topk_agreement_allowed,
        )
    if check.rtol is None or check.atol is None:
        return None
    used = _elements(check.rtol, check.atol)
    if isinstance(asked, Statistics):
        return used
    expected = asked.of(check.output or "")
    return _formula(asked) if used == _elements(expected.rtol, expected.atol) else used


def _formula(tolerance: Tolerance | Statistics) -> str:
    from onnxport.verify.tolerance import Statistics

    if isinstance(tolerance, Statistics):
        return _statistics(**tolerance.model_dump(exclude={"decisions"}))
    overrides = f", other values for {', '.join(sorted(tolerance.per_output))}" if tolerance.per_output else ""
    return _elements(tolerance.rtol, tolerance.atol) + overrides


def _elements(rtol: float, atol: float) -> str:
    return f"|difference| <= {atol:g} + {rtol:g} * |reference|"


def _statistics(
    *,
    min_cosine: float,
    max_rms_error: float | None,
    min_sqnr_db: float | None,
    max_p99_error: float | None,
    min_argmax_agreement: float | None,
    top_k: int | None,
    min_topk_agreement: float | None,
) -> str:
    """None: a report that was written before there was such a threshold. A share of 0 asks for nothing."""
    told = [
        f"cosine >= {min_cosine:g}",
        None if max_rms_error is None else f"RMS error <= {max_rms_error:g}",
        None if min_sqnr_db is None else f"SQNR >= {min_sqnr_db:g} dB",
        None if max_p99_error is None else f"p99 error <= {max_p99_error:g}",
        f"decisions kept >= {min_argmax_agreement:g}" if min_argmax_agreement else None,
        f"top {top_k} kept >= {min_topk_agreement:g}" if min_topk_agreement else None,
    ]
    return ", ".join(filter(None, told))


def _lost(loss: float | None) -> float | None:
    """A score that is better than the reference's lost nothing."""
    return None if loss is None else max(loss, 0.0)


def _amplitude(decibels: float | None) -> float | None:
    """A ratio of powers in dB as the error over the signal: 6.02 dB are 0.5."""
    return None if decibels is None else 10 ** min(-decibels / 20, 300.0)  # beyond it Python overflows


def _badness(check: CheckResult) -> float:
    """Without a number it did not even come to values."""
    used = allowance_used(check)
    return math.inf if used is None else used


def _share(value: float | None, threshold: float | None, *, best: float) -> float | None:
    if value is None or threshold is None:
        return None
    error, allowed = abs(best - value), abs(best - threshold)
    if math.isnan(error):
        return math.inf
    if allowed == 0.0:
        return 0.0 if error == 0.0 else math.inf
    return error / allowed
