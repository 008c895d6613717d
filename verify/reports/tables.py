"""Tables of what is measured beside single differences: scores of tasks, and statistics of lower precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from onnxport.verify.report import CheckResult
from onnxport.verify.reports.outline import Section, judges_decisions, together
from onnxport.verify.reports.printable import number


@dataclass(frozen=True)
class Table:
    """A title, the names of the columns, and rows of as many cells."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


_STATISTICS: dict[str, tuple[str, Callable[[Iterable[float]], float]]] = {
    "worst cosine": ("min_cosine", min),
    "RMS error": ("rms_error", max),
    "SQNR, dB": ("sqnr_db", min),
    "p50": ("p50_abs_diff", max),
    "p90": ("p90_abs_diff", max),
    "p99": ("p99_abs_diff", max),
    "p99.9": ("p99_9_abs_diff", max),
    "p99 / RMS": ("p99_error", max),
}
_DECISIONS = {"decisions kept": "argmax_agreement", "top k kept": "topk_agreement"}


def tables(found: Sequence[Section]) -> list[Table]:
    """Returns the tables that have rows: scores first."""
    scores = [row for section in found for check in section.checks if (row := _score(section, check))]
    judged = [section for section in found if _by_statistics(section)]
    head = ("variant", "data set", "metric", "score", "reference", "loss", "95 % interval", "allowed")
    made = [
        Table("Task metrics", head, tuple(scores)),
        Table(
            "Lower precision: the worst of all cases",
            ("number", *(section.title for section in judged)),
            tuple(_statistics(judged)),
        ),
    ]
    return [table for table in made if table.rows]


def _score(section: Section, check: CheckResult) -> tuple[str, ...] | None:
    if check.score is None:
        return None
    interval = f"{_cell(check.score_loss_low)} to {_cell(check.score_loss_high)}"
    return (
        section.title,
        check.case or "",
        check.output or "",
        _cell(check.score),
        _cell(check.reference_score),
        _cell(check.score_loss),
        interval,
        _cell(check.max_score_loss_allowed),
    )


def _by_statistics(section: Section) -> list[CheckResult]:
    return [check for check in section.checks if check.min_cosine_allowed is not None]


def _statistics(found: Sequence[Section]) -> Iterator[tuple[str, ...]]:
    """Yields a row for each number that any variant has, the verdict first. Decisions are of all cases together."""
    if not found:
        return
    columns = [_by_statistics(section) for section in found]
    pooled = [[check for check in column if judges_decisions(check)] for column in columns]
    yield "verdict", *(together(column) for column in columns)
    for title, (name, choose) in _STATISTICS.items():
        row = [_worst(name, choose, column) for column in columns]
        if any(row):
            yield title, *row
    for title, name in _DECISIONS.items():
        row = [_worst(name, min, column) for column in pooled]
        if any(row):
            yield title, *row


def _worst(name: str, choose: Callable[[Iterable[float]], float], checks: Sequence[CheckResult]) -> str:
    values = [value for check in checks if (value := getattr(check, name)) is not None]
    if any(math.isnan(value) for value in values):
        return number(math.nan)
    return number(choose(values)) if values else ""


def _cell(value: float | None) -> str:
    return "" if value is None else number(value)
