"""A verification report as a person reads it: check families against variants, then what failed and why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from onnxport.exporters.cli.console import Console

if TYPE_CHECKING:
    from onnxport.verify.report import CheckResult, Report
    from onnxport.verify.tolerance import Statistics, Tolerance

WHOLE_BUNDLE = "bundle"
"""The column of checks that concern no single variant."""

_FAILURES_AT_ONCE = 5

_STYLE = {"pass": "green", "fail": "bold red", "skip": "dim", "": ""}


def as_document(report: Report) -> dict[str, Any]:
    """Returns the report as `Report.to_json` writes it, for a JSON document that holds it."""
    document: dict[str, Any] = json.loads(report.to_json())
    return document


def show_report(console: Console, report: Report) -> None:
    """Prints the verdict table, every failed check with its detail, every reason for a skip, and the verdict."""
    components = list(dict.fromkeys(check.component for check in report.checks if check.component))
    if len(components) <= 1:
        _show_table(console, "check", report.checks)
    else:
        _show_table(console, "check", [check for check in report.checks if not check.component])
        for component in components:
            _show_table(console, component, [check for check in report.checks if check.component == component])
    for line in _failures(report.checks):
        console.data(line, style=_STYLE["fail"])
    for reason, where in _reasons(report.checks).items():
        console.data(f"skip {', '.join(where)}: {reason}")
    console.data(_verdict_line(report), style=_STYLE[report.verdict])
    console.data(_criterion(report.tolerance))


def _show_table(console: Console, title: str, checks: Sequence[CheckResult]) -> None:
    """Prints a row for each family of checks and a column for each variant."""
    from rich.table import Table
    from rich.text import Text

    columns: dict[str, list[CheckResult]] = {}
    for check in sorted(checks, key=_place):
        columns.setdefault(check.variant or WHOLE_BUNDLE, []).append(check)
    families = dict.fromkeys(_family(check) for check in checks)
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for name in (title, *columns):
        table.add_column(name)
    for family in families:
        verdicts = [_together([check for check in column if _family(check) == family]) for column in columns.values()]
        table.add_row(family, *(Text(v, style=_STYLE[v]) for v in verdicts))
    table.add_row("worst ratio", *map(_worst_ratio, columns.values()))
    overall = map(_together, columns.values())
    table.add_row("verdict", *(Text(v, style=_STYLE[v]) for v in overall), style="bold")
    console.data(table)


def _place(check: CheckResult) -> int:
    """Puts checks of the whole bundle first, then the variants in the order they are made in."""
    from onnxport.exporters.variants import KINDS

    order = [None, *KINDS]
    return order.index(check.variant) if check.variant in order else len(order)


def _family(check: CheckResult) -> str:
    """`outputs` of `outputs.match`."""
    return check.id.partition(".")[0]


def _together(checks: Sequence[CheckResult]) -> str:
    """One verdict for several: a failure shows, a pass outweighs a skip, nothing is nothing."""
    verdicts = {check.verdict for check in checks}
    return next((v for v in ("fail", "pass", "skip") if v in verdicts), "")


def _worst_ratio(checks: Sequence[CheckResult]) -> str:
    ratios = [check.worst_ratio for check in checks if check.worst_ratio is not None]
    return f"{max(ratios):.3g}" if ratios else ""


def _failures(checks: Sequence[CheckResult]) -> Iterator[str]:
    """Yields a line for each failed check, the worst first; of one check on one variant no more than a few."""
    groups: dict[str, list[CheckResult]] = {}
    for check in checks:
        if check.verdict == "fail":
            groups.setdefault(" ".join(filter(None, (check.id, check.component, check.variant))), []).append(check)
    for name, failed in groups.items():
        worst_first = sorted(failed, key=lambda check: -(check.worst_ratio or 0))
        for check in worst_first[:_FAILURES_AT_ONCE]:
            case = ", ".join(filter(None, (check.case, check.output)))
            yield f"FAIL {name}{f' ({case})' if case else ''}: {check.detail}"
        if len(failed) > _FAILURES_AT_ONCE:
            yield f"FAIL {name}: {len(failed) - _FAILURES_AT_ONCE} more like this; --json lists them all"


def _reasons(checks: Sequence[CheckResult]) -> dict[str, list[str]]:
    """Reason to the checks that were skipped for it, each named once."""
    found: dict[str, dict[str, None]] = {}
    for check in checks:
        if check.verdict == "skip":
            found.setdefault(check.detail, {})[check.id] = None
    return {reason: list(where) for reason, where in found.items()}


def _verdict_line(report: Report) -> str:
    counts = f"{report.summary.passed} passed, {report.summary.failed} failed, {report.summary.skipped} skipped"
    reason = f" ({report.detail})" if report.detail else ""
    return f"{report.verdict}: {counts}{reason}"


def _criterion(tolerance: Tolerance | Statistics) -> str:
    from onnxport.verify.tolerance import Tolerance

    if isinstance(tolerance, Tolerance):
        overrides = f", other values for {', '.join(tolerance.per_output)}" if tolerance.per_output else ""
        return f"allowed: |difference| <= {tolerance.atol:g} + {tolerance.rtol:g} * |reference|{overrides}"
    return f"required: cosine >= {tolerance.min_cosine:g}, argmax agreement >= {tolerance.min_argmax_agreement:g}"
