"""Markdown for a comment on a pull request: verdict, table, failures; what passed is cut to fit, failures are not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from onnxport.verify.reports.latency import how, latency_table
from onnxport.verify.reports.outline import (
    Failed,
    Section,
    allowance_used,
    allowed,
    case_of,
    counts,
    failures,
    family,
    flattened,
    name_of,
    numbers,
    problem,
    reasons,
    sections,
    subject_of,
    together,
    worst,
)
from onnxport.verify.reports.printable import number, single_line, typeset
from onnxport.verify.reports.tables import tables

if TYPE_CHECKING:
    from onnxport.verify.report import CheckResult, Report

LIMIT_BYTES = 65_536
"""GitHub takes comments of up to 65,536 characters; a character is at least a byte in UTF-8, so this is safe."""

_MARK = {"pass": "✅", "fail": "❌", "skip": "⚪", "": ""}
_DETAILED = 3
"""Failures of one kind that keep their details where there is no room for all details."""

_WORST_SHOWN = 5
_CLIPPED = 400
"""Characters of a detail where there is no room for all details."""

_REASONS_SHOWN = 50
_SPECIAL = re.compile(r"([\\`*_\[\]<>~$&])")


def to_markdown(report: Report) -> str:
    """Returns the report as GitHub-flavoured Markdown of at most `LIMIT_BYTES`.

    Rows of passed checks are left out until it fits, and their number is told. Failed checks are all there: in a report
    that is nothing but failures, only the worst of each kind keep their details, and where even the names of the others
    do not fit, the text is longer than the limit.
    """
    found = sections(report)
    failed = failures(found)
    passed = [check for section in found for check in section.checks if check.verdict == "pass"]

    def fits(text: str) -> bool:
        return len(text.encode()) <= LIMIT_BYTES

    shortest = _document(report, found, _failed_in_short(failed), _passed(passed, 0))
    in_full = _document(report, found, _failed_in_full(failed), _passed(passed, 0))
    told = _failed_in_full(failed) if fits(in_full) else _failed_in_short(failed)
    if not fits(shortest):
        return shortest
    rows = _most(len(passed), lambda rows: fits(_document(report, found, told, _passed(passed, rows))))
    return _document(report, found, told, _passed(passed, rows))


def _document(report: Report, found: Sequence[Section], failed: Sequence[str], passed: Sequence[str]) -> str:
    trouble, name = problem(report), name_of(report)
    blocks = [
        f"## {_MARK[report.verdict]} onnxport verify{f' {_text(name)}' if name else ''}: {report.verdict}",
        *([" · ".join(map(_text, subject_of(report)))] if report.subject else []),
        " · ".join([counts(report), *(_text(typeset(line)) for line in allowed(report))]),
        *([f"**{_text(trouble)}**"] if trouble else []),
        *(f"Note: {_text(note)}." for note in report.notes or ()),
        _overview(found),
        *failed,
        *_latency(report),
        *_tables(found),
        *_largest_errors(found),
        *passed,
        *_skipped(report.checks),
        _environment(report),
    ]
    return "\n\n".join(blocks) + "\n"


def _overview(found: Sequence[Section]) -> str:
    """A row for each family of checks, a column for each variant."""
    families = list(dict.fromkeys(family(check) for section in found for check in section.checks))
    rows = [
        [_text(name), *(_cell([check for check in section.checks if family(check) == name]) for section in found)]
        for name in families
    ]
    ratios = [worst(section.checks) for section in found]
    rows.append(["worst ratio", *("" if ratio is None else number(ratio) for ratio in ratios)])
    rows.append(["**verdict**", *(f"**{_verdict(together(section.checks))}**" for section in found)])
    return _table(["check", *(_text(section.title) for section in found)], rows)


def _cell(checks: Sequence[CheckResult]) -> str:
    verdict = together(checks)
    count = sum(check.verdict == verdict for check in checks)
    return (
        f"{_MARK[verdict]} {count} of {len(checks)}" if verdict == "fail" else f"{_MARK[verdict]} {count or ''}".strip()
    )


def _verdict(verdict: str) -> str:
    return f"{_MARK[verdict]} {verdict}".strip()


def _failed_in_full(failed: Sequence[Failed]) -> list[str]:
    return _failed(failed, [_failure(check) for kind in failed for check in kind.checks])


def _failed_in_short(failed: Sequence[Failed]) -> list[str]:
    """Every failure is named; the worst of each kind with its details."""
    lines = []
    for kind in failed:
        lines += [_failure(check, clipped=True) for check in kind.checks[:_DETAILED]]
        others = kind.checks[_DETAILED:]
        if others:
            where = "; ".join(filter(None, (_case(check) for check in others)))
            lines.append(f"- ❌ **{_text(kind.id)}**{_place(others[0])}, {len(others):,} more: {where}".rstrip(": "))
    return _failed(failed, lines)


def _failed(failed: Sequence[Failed], lines: Sequence[str]) -> list[str]:
    return [f"### Failed ({sum(len(kind.checks) for kind in failed):,})", "\n".join(lines)] if lines else []


def _failure(check: CheckResult, *, clipped: bool = False) -> str:
    case = _case(check)
    detail = f"{check.detail[:_CLIPPED]}…" if clipped and len(check.detail) > _CLIPPED else check.detail
    measured = ", ".join(f"{name} {number(value)}" for name, value in numbers(check).items())
    line = f"- ❌ **{_text(check.id)}**{_place(check)}{f' · {case}' if case else ''}: {_text(detail)}"
    return f"{line}<br><sub>{_text(measured)}</sub>" if measured else line


def _place(check: CheckResult) -> str:
    place = "/".join(part for part in (check.component, check.variant) if part)
    return f" · {_code(place)}" if place else ""


def _case(check: CheckResult) -> str:
    return ", ".join(_code(part) for part in (case_of(check), check.output) if part)


def _largest_errors(found: Sequence[Section]) -> list[str]:
    """How close it was, or how far off: the largest errors of each variant."""
    rows = []
    for section in found:
        measured = [(used, check) for check in section.checks if (used := allowance_used(check)) is not None]
        measured.sort(key=lambda pair: -pair[0])
        rows += [
            [_text(section.title), _text(check.id), _case(check), number(used), _optional(check.max_abs_diff)]
            for used, check in measured[:_WORST_SHOWN]
        ]
    if not rows:
        return []
    head = ["variant", "check", "case, output", "error / allowed", "max abs diff"]
    return [_folded("Largest errors", _table(head, rows))]


def _tables(found: Sequence[Section]) -> list[str]:
    return [
        _folded(table.title, _table(table.head, [[_text(cell) for cell in row] for row in table.rows]))
        for table in tables(found)
    ]


def _latency(report: Report) -> list[str]:
    table = latency_table(report)
    if table is None:
        return []
    rows = [[_text(cell) for cell in row] for row in table.rows]
    return [f"### {table.title}", f"{_text(how(report))}.", _table(table.head, rows)]


def _passed(passed: Sequence[CheckResult], rows: int) -> list[str]:
    if not passed:
        return []
    left_out = len(passed) - rows
    title = f"Passed ({len(passed)}{f', {left_out:,} left out here' if left_out else ''})"
    if not rows:
        return [title + "."]
    head = ["check", "variant", "case, output", "detail"]
    return [_folded(title, _table(head, [_passed_row(check) for check in passed[:rows]]))]


def _passed_row(check: CheckResult) -> list[str]:
    place = "/".join(part for part in (check.component, check.variant) if part)
    return [_text(check.id), _text(place), _case(check), _text(check.detail)]


def _skipped(checks: Sequence[CheckResult]) -> list[str]:
    found = reasons(checks)
    if not found:
        return []
    lines = [f"- {', '.join(map(_text, ids))}: {_text(reason)}" for reason, ids in found.items()]
    if len(lines) > _REASONS_SHOWN:
        lines[_REASONS_SHOWN:] = [f"- {len(lines) - _REASONS_SHOWN} more reasons left out here"]
    return [_folded("Skipped", "\n".join(lines))]


def _environment(report: Report) -> str:
    rows = [[_text(name), _text(value)] for name, value in sorted(report.environment.items())]
    rows += [[_text(name), _text(value)] for name, value in flattened(report.tolerance).items()]
    return _folded("Environment and tolerance", _table(["", ""], rows))


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{content}\n\n</details>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _most(total: int, fits: Callable[[int], bool]) -> int:
    """Returns the largest number up to `total` that fits; 0 is taken to fit."""
    low, high = 0, total
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _optional(value: float | None) -> str:
    return "" if value is None else number(value)


def _text(text: str) -> str:
    """Escapes what Markdown would read as markup. `@name` and `#12` are broken up: quoting must not notify anybody."""
    escaped = _SPECIAL.sub(r"\\\1", single_line(text))
    return re.sub(r"([@#])(?=\w)", r"\1<!-- -->", escaped)


def _code(text: str) -> str:
    """Returns a code span, with a longer fence than any in the text."""
    text = single_line(text)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    gap = " " if longest else ""
    return f"{fence}{gap}{text}{gap}{fence}"
