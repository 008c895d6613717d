"""One self-contained HTML page: verdict, what failed, table, plots, every check. No script and nothing to download."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from onnxport.verify.reports.html_latency import latency_plot
from onnxport.verify.reports.html_plots import plots, series_of
from onnxport.verify.reports.html_style import STYLE
from onnxport.verify.reports.outline import (
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

_SHOWN_AT_ONCE = 5
"""Failures of one kind that are not folded."""

_MARK = {"pass": "✓", "fail": "✕"}
# Nothing may be loaded or run, whatever a name in a report looks like.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def to_html(report: Report) -> str:
    """Returns the report as one HTML page that needs nothing else: light or dark by the reader's preference."""
    found = sections(report)
    title = f"{report.verdict}: {name_of(report) or 'onnxport verification'}"
    body = "".join(
        [
            _verdict(report),
            _failures(found),
            _overview(found),
            _tables(found),
            plots(found),
            latency_plot(report, series_of(found)),
            _checks(found),
            _skipped(report),
            _environment(report),
        ]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>\n{STYLE}\n</style>\n</head>\n"
        f"<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )


def _verdict(report: Report) -> str:
    said = {"pass": "Agrees with the reference", "fail": "Does not agree with the reference"}[report.verdict]
    trouble = problem(report)
    told = " ".join(f"{line[:1].upper()}{line[1:]}." for line in map(typeset, allowed(report)))
    subject = f'<p class="subject">{_text(" · ".join(subject_of(report)))}</p>\n' if report.subject else ""
    notes = "".join(f'<p class="note">{_text(f"Note: {note}.")}</p>\n' for note in report.notes or ())
    lead = f"{_text(trouble[:1].upper() + trouble[1:])}. " if trouble else ""
    return (
        f'<header><p class="over">onnxport verification</p>\n<h1 class="{report.verdict}">'
        f"{_MARK[report.verdict]} {said}</h1>\n{subject}"
        f'<p class="lead">{lead}{counts(report)}.</p>\n{notes}'
        f'<p class="note">{_text(told)}</p></header>\n'
    )


def _failures(found: Sequence[Section]) -> str:
    kinds = []
    for kind in failures(found):
        place = "" if kind.section.variant is None else f" in {_text(kind.section.title)}"
        items = [_item(check) for check in kind.checks]
        kinds.append(
            f'<article class="kind"><h3><code>{_text(kind.id)}</code>{place} '
            f'<span class="quiet">{len(items):,} of {kind.put:,}</span></h3>\n{"".join(items[:_SHOWN_AT_ONCE])}'
            f"{_folded(f'{len(items) - _SHOWN_AT_ONCE:,} more like this', ''.join(items[_SHOWN_AT_ONCE:]))}</article>\n"
        )
    return f'<section><h2 id="failed">What failed</h2>\n{"".join(kinds)}</section>\n' if kinds else ""


def _item(check: CheckResult) -> str:
    case = _case(check)
    measured = "".join(
        f"<div><dt>{_label(name)}</dt><dd>{_text(number(value))}</dd></div>" for name, value in numbers(check).items()
    )
    where = f'<p class="where">{case}</p>' if case else ""
    return f'<div class="item">{where}<p>{_text(check.detail)}</p>{f"<dl>{measured}</dl>" if measured else ""}</div>\n'


def _overview(found: Sequence[Section]) -> str:
    families = list(dict.fromkeys(family(check) for section in found for check in section.checks))
    titles = [section.title for section in found]
    rows = [
        _matrix_row(
            name, titles, [_cell([check for check in section.checks if family(check) == name]) for section in found]
        )
        for name in families
    ]
    ratios = [worst(section.checks) for section in found]
    rows.append(_matrix_row("error / allowed", titles, [_ratio(ratio) for ratio in ratios]))
    outcomes = [_outcome(together(section.checks)) for section in found]
    rows.append(_matrix_row("verdict", titles, outcomes, kind="sum"))
    return f'<section><h2 id="overview">Checks by variant</h2>\n{_matrix(["check", *titles], rows)}</section>\n'


def _matrix(head: Sequence[str], rows: Sequence[str]) -> str:
    names = "".join(f'<th scope="col">{_text(name)}</th>' for name in head)
    return (
        f'<div class="scroll" tabindex="0"><table class="matrix"><thead><tr>{names}</tr></thead>\n'
        f"<tbody>\n{''.join(rows)}</tbody></table></div>\n"
    )


def _matrix_row(name: str, titles: Sequence[str], cells: Sequence[str], kind: str = "") -> str:
    """Every cell has the title of its column: on a phone there are no columns."""
    told = "".join(
        f'<td data-name="{_text(title)}">{cell}</td>' if cell else "<td></td>"
        for title, cell in zip(titles, cells, strict=True)
    )
    return f'<tr class="{kind}"><th scope="row">{_text(name)}</th>{told}</tr>\n'


def _cell(checks: Sequence[CheckResult]) -> str:
    verdict = together(checks)
    if not verdict:
        return ""
    count = sum(check.verdict == verdict for check in checks)
    told = {
        "fail": f"{_MARK['fail']} {count:,} of {len(checks):,}",
        "pass": f"{_MARK['pass']} {count:,}",
        "skip": "skipped",
    }
    return f'<span class="{verdict} num">{told[verdict]}</span>'


def _outcome(verdict: str) -> str:
    return f'<span class="{verdict}">{verdict}</span>'


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f'<span class="num {"" if ratio <= 1.0 else "fail"}">{number(ratio)}</span>'


def _tables(found: Sequence[Section]) -> str:
    shown = []
    for table in tables(found):
        rows = [_matrix_row(name, table.head[1:], [_text(cell) for cell in cells]) for name, *cells in table.rows]
        shown.append(f"<h2>{_text(table.title)}</h2>\n{_matrix(table.head, rows)}")
    return f"<section>{''.join(shown)}</section>\n" if shown else ""


def _checks(found: Sequence[Section]) -> str:
    tables = []
    for section in found:
        rows = "".join(_check_row(check) for check in section.checks)
        names = ("", "check", "case, output", "error / allowed", "max abs diff", "detail")
        head = "".join(f'<th scope="col">{name}</th>' for name in names)
        table = f'<table class="checks"><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table>'
        tables.append(
            _folded(f"{_text(section.title)}: {len(section.checks):,} checks", f'<div class="scroll">{table}</div>')
        )
    return f'<section><h2 id="checks">Every check</h2>\n{"".join(tables)}</section>\n'


def _check_row(check: CheckResult) -> str:
    cells = [
        ("", _outcome(check.verdict)),
        ("", f"<code>{_text(check.id)}</code>"),
        ("", _case(check)),
        ("error / allowed", _ratio(allowance_used(check))),
        (
            "max abs diff",
            "" if check.max_abs_diff is None else f'<span class="num">{number(check.max_abs_diff)}</span>',
        ),
        ("", _text(check.detail)),
    ]
    return f"<tr>{''.join(f'<td{_named(name)}>{content}</td>' for name, content in cells)}</tr>\n"


def _named(name: str) -> str:
    return f' data-name="{name}"' if name else ""


def _skipped(report: Report) -> str:
    found = reasons(report.checks)
    if not found:
        return ""
    lines = "".join(
        f"<li>{', '.join(f'<code>{_text(check)}</code>' for check in ids)}: {_text(reason)}</li>\n"
        for reason, ids in found.items()
    )
    return f'<section><h2 id="skipped">Skipped</h2>\n<ul class="reasons">\n{lines}</ul></section>\n'


def _environment(report: Report) -> str:
    known: dict[str, Any] = {**dict(sorted(report.environment.items())), **flattened(report.tolerance)}
    rows = "".join(
        f'<tr><th scope="row">{_text(name)}</th><td>{_text(str(value))}</td></tr>\n' for name, value in known.items()
    )
    return (
        '<section><h2 id="environment">Environment and tolerance</h2>\n'
        f"{_folded('Versions and values', f'<table><tbody>{rows}</tbody></table>')}</section>\n"
    )


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>\n{content}</details>\n" if content else ""


def _case(check: CheckResult) -> str:
    return ", ".join(_text(part) for part in (case_of(check), check.output) if part)


def _label(name: str) -> str:
    return _text(name.replace("_", " "))


def _text(text: str) -> str:
    return escape(single_line(text))
