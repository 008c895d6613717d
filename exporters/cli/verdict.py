"""A verification report as a person reads it: check families against variants, then what failed and why."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from onnxport.exporters.cli.console import Console
from onnxport.verify.reports.latency import how, timed
from onnxport.verify.reports.outline import (
    WHOLE_BUNDLE,
    allowance_used,
    allowed,
    case_of,
    counts,
    family,
    judges_decisions,
    loose,
    together,
    told_first,
    worst,
)

if TYPE_CHECKING:
    from onnxport.verify.report import CheckResult, Report

_FAILURES_AT_ONCE = 5
_SAME_OUTPUTS = ("iobinding.match", "levels.match", "reload.match")
"""Checks of the same outputs, got in other ways: where the outputs are wrong, so are these."""

_SKIP_WIDTH = 100

_STATISTICS = {
    "worst cosine": "min_cosine",
    "worst SQNR, dB": "sqnr_db",
}
"""Row of the table to the number whose smallest value it shows."""

_DECISIONS = {"decisions kept": "argmax_agreement", "top k kept": "topk_agreement"}
"""The same of numbers that are over all cases together."""

_STYLE = {"pass": "green", "fail": "bold red", "skip": "dim", "": ""}


def as_document(report: Report) -> dict[str, Any]:
    """Returns the report as `Report.to_json` writes it, for a JSON document that holds it."""
    document: dict[str, Any] = json.loads(report.to_json())
    return document


def show_report(console: Console, report: Report) -> None:
    """Prints the verdict table, every failed check with its detail, notes, a reason for each skipped one, the verdict.

    A quiet console gets the failures, with the notes that may explain them, and the verdict.
    """
    from onnxport.verify.checks.fusion import NOTHING_TO_EXPECT

    if not console.quiet:
        _show_tables(console, report)
    for line in _failures(report.checks):
        console.data(line, style=_STYLE["fail"])
    if not console.quiet or report.verdict == "fail":
        for note in report.notes or ():
            console.data(f"note: {note}")
    if not console.quiet:
        _show_latency(console, report)
        for check in report.checks:
            if check.score is not None and check.verdict == "pass":
                console.data(f"{check.variant} on {check.case}: {check.detail}")
        for line in _skips(check for check in report.checks if check.detail != NOTHING_TO_EXPECT):
            console.data(line, style=_STYLE["skip"])
        for line in (*allowed(report), *loose(report)):
            console.data(line)
    console.data(_verdict_line(report), style=_STYLE[report.verdict])


def _show_tables(console: Console, report: Report) -> None:
    components = list(dict.fromkeys(check.component for check in report.checks if check.component))
    if len(components) <= 1:
        _show_table(console, "check", report.checks)
        return
    _show_table(console, "check", [check for check in report.checks if not check.component])
    for component in components:
        _show_table(console, component, [check for check in report.checks if check.component == component])


def _show_table(console: Console, title: str, checks: Sequence[CheckResult]) -> None:
    """Prints a row for each family of checks and a column for each variant."""
    from rich.table import Table
    from rich.text import Text

    columns: dict[str, list[CheckResult]] = {}
    for check in sorted(checks, key=_place):
        columns.setdefault(check.variant or WHOLE_BUNDLE, []).append(check)
    families = dict.fromkeys(family(check) for check in checks)
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for name in (title, *columns):
        table.add_column(name)
    for name in families:
        verdicts = [together([check for check in column if family(check) == name]) for column in columns.values()]
        table.add_row(name, *(Text(v, style=_STYLE[v]) for v in verdicts))
    pooled = [[check for check in column if judges_decisions(check)] for column in columns.values()]
    for names, judged in ((_STATISTICS, list(columns.values())), (_DECISIONS, pooled)):
        for name, number in names.items():
            found = [_smallest(number, column) for column in judged]
            if any(found):
                table.add_row(name, *found)
    table.add_row("worst ratio", *map(_worst_ratio, columns.values()))
    overall = map(together, columns.values())
    table.add_row("verdict", *(Text(v, style=_STYLE[v]) for v in overall), style="bold")
    console.data(table)


def _show_latency(console: Console, report: Report) -> None:
    """Prints a table for each component that was timed: a row for each size, a column for each variant."""
    from rich.table import Table

    groups = timed(report)
    for component in dict.fromkeys(group.component for group in groups):
        own = [group for group in groups if group.component == component]
        variants = list(dict.fromkeys(one.variant for group in own for one in group.variants))
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
        for name in (f"{component or 'latency'}, p50 / p90 ms", *variants):
            table.add_column(name)
        for group in own:
            cells = {one.variant: f"{one.p50_ms:.3g} / {one.p90_ms:.3g}" for one in group.variants}
            table.add_row(group.size, *(cells.get(variant, "") for variant in variants))
        console.data(table)
    if groups:
        console.data(f"latency: {how(report)}")


def _place(check: CheckResult) -> int:
    """Puts checks of the whole bundle first, then the variants in the order they are made in."""
    from onnxport.exporters.variants import KINDS

    order = [None, *KINDS]
    return order.index(check.variant) if check.variant in order else len(order)


def _worst_ratio(checks: Sequence[CheckResult]) -> str:
    ratio = worst(checks)
    return "" if ratio is None else f"{ratio:.3g}"


def _smallest(number: str, checks: Sequence[CheckResult]) -> str:
    """The worst of a statistic, NaN being the worst of all; "" where no check is judged by it."""
    judged = [check for check in checks if check.min_cosine_allowed is not None]
    seen = [value for check in judged if (value := getattr(check, number)) is not None]
    return f"{min(seen, key=lambda value: (not math.isnan(value), value)):.4g}" if seen else ""


def _failures(checks: Sequence[CheckResult]) -> Iterator[str]:
    """Yields a line for each failed check: the outputs first, the worst of them first of all, and of one check on one
    variant no more than a few. Where outputs fail, the checks of the same outputs are one line together.
    """
    failed = sorted((check for check in checks if check.verdict == "fail"), key=lambda check: told_first(check.id))
    wrong = {(check.component, check.variant): check.id for check in reversed(failed) if not told_first(check.id)[0]}
    groups: dict[str, list[CheckResult]] = {}
    same: dict[tuple[str | None, str | None], list[str]] = {}
    for check in failed:
        if check.id in _SAME_OUTPUTS and (check.component, check.variant) in wrong:
            same.setdefault((check.component, check.variant), []).append(check.id)
        else:
            groups.setdefault(_named(check.id, check.component, check.variant), []).append(check)
    for name, group in groups.items():
        worst_first = sorted(group, key=lambda check: -(allowance_used(check) or 0))
        for check in worst_first[:_FAILURES_AT_ONCE]:
            case = ", ".join(filter(None, (case_of(check), check.output)))
            yield f"FAIL {name}{f' ({case})' if case else ''}: {check.detail}"
        if len(group) > _FAILURES_AT_ONCE:
            yield f"FAIL {name}: {len(group) - _FAILURES_AT_ONCE} more like this; --json lists them all"
    for place, ids in same.items():
        name = _named(", ".join(dict.fromkeys(ids)), *place)
        yield f"FAIL {name}: {len(ids)} more, of the outputs that fail in {wrong[place]}; --json lists them all"


def _named(check: str, component: str | None, variant: str | None) -> str:
    return " ".join(filter(None, (check, component, variant)))


def _skips(checks: Iterable[CheckResult]) -> Iterator[str]:
    """Yields one short line for each id with skips: a report has all reasons in full, a terminal has not the room."""
    skipped: dict[str, list[str]] = {}
    for check in checks:
        if check.verdict == "skip" and check.detail not in skipped.setdefault(check.id, []):
            skipped[check.id].append(check.detail)
    for name, details in skipped.items():
        more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
        yield shorten(f"skip {name}{more}: {details[0]}", _SKIP_WIDTH, placeholder=" ...")


def _verdict_line(report: Report) -> str:
    reason = f" ({report.detail})" if report.detail else ""
    return f"{report.verdict}: {counts(report)}{reason}"
