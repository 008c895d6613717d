from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from onnxport.verify import CheckResult, Report, Tolerance
from onnxport.verify.report import Verified
from onnxport.verify.reports.markdown import LIMIT_BYTES, to_markdown

TOLERANCE = Tolerance(rtol=1e-3, atol=1e-4)


def rendered(text: str) -> str:
    """What GitHub makes of it before it sanitises: CommonMark with tables and HTML."""
    return str(MarkdownIt("commonmark").enable("table").render(text))


def cells(text: str) -> list[list[str]]:
    """The cells of every table row, as a reader sees them."""
    rows = re.findall(r"<tr>(.*?)</tr>", rendered(text), re.DOTALL)
    return [
        [re.sub(r"<[^>]+>", "", c) for c in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)] for row in rows
    ]


def many(check: Callable[..., CheckResult], count: int, verdict: str, detail: str = "x" * 80) -> Iterator[CheckResult]:
    for n in range(count):
        yield check(verdict=verdict, case=f"case {n}", output="hidden", detail=detail, compared=1, worst_ratio=2.0)


def test_verdict_first_then_the_table_then_what_failed(make_report: Callable[..., Report]) -> None:
    text = to_markdown(make_report())
    assert text.startswith("## ❌ onnxport verify: fail\n\n25 passed, 4 failed, 3 skipped")
    assert cells(text)[:6] == [
        ["check", "bundle", "base", "optimized", "int8"],
        ["files", "✅ 2", "", "", ""],
        ["fusion", "", "⚪ 1", "⚪ 1", "⚪ 1"],
        ["graph", "", "✅ 1", "✅ 1", "✅ 1"],
        ["outputs", "", "✅ 8", "❌ 4 of 8", "✅ 8"],
        ["worst ratio", "", "0.03", "∞", "0.2"],
    ]
    order = ["| check |", "### Failed (4)", "Largest errors", "Passed (25)", "Skipped", "Environment"]
    assert sorted(order, key=text.index) == order
    assert "**outputs.match** · `model/optimized` · `text zh`, `hidden`: largest difference 1e-07" in text
    assert text.index("`text zh`, `hidden`") < text.index("`padding left 2x12`, `hidden`"), "NaN and Inf are the worst"


def test_what_was_verified_stands_on_top_and_notes_below_the_counts(
    make_report: Callable[..., Report], subject: Verified
) -> None:
    report = make_report().model_copy(update={"subject": subject}).with_notes(["the weights are others"])
    head, who, _, note, *_ = to_markdown(report).split("\n\n")
    assert head == "## ❌ onnxport verify out-1.0: fail"
    assert who.startswith("out-1.0 · tiny-bert · BertModel · fill-mask · engine dynamo")
    assert note == "Note: the weights are others."


def test_a_pass_has_no_failures(make_report: Callable[..., Report]) -> None:
    text = to_markdown(make_report(failing=False))
    assert text.startswith("## ✅ onnxport verify: pass")
    assert "Failed" not in text
    assert "❌" not in text


def test_everything_is_in_a_small_report(make_report: Callable[..., Report]) -> None:
    report = make_report()
    rows = [row for row in cells(to_markdown(report)) if row[0] == "outputs.match"]
    assert len(rows) == sum(c.id == "outputs.match" and c.verdict == "pass" for c in report.checks)
    assert "left out" not in to_markdown(report)


def test_passing_rows_are_cut_to_fit_a_comment_and_counted(check: Callable[..., CheckResult]) -> None:
    checks = [*many(check, 3000, "pass"), *(c.model_copy(update={"variant": "ort"}) for c in many(check, 100, "fail"))]
    text = to_markdown(Report.of(checks, TOLERANCE))
    assert 0.95 * LIMIT_BYTES < len(text.encode()) <= LIMIT_BYTES
    kept = sum(row[:2] == ["outputs.match", "model/base"] for row in cells(text))
    left_out = re.search(r"Passed \(3000, ([\d,]+) left out here\)", text)
    assert left_out is not None
    assert kept + int(left_out.group(1).replace(",", "")) == 3000
    assert all(f"`case {n}`, `hidden`: xxx" in text for n in range(100)), "every failure keeps its detail"


def test_failures_that_do_not_fit_with_details_are_all_named(check: Callable[..., CheckResult]) -> None:
    report = Report.of([*many(check, 900, "fail", "漢" * 500), *many(check, 50, "pass")], TOLERANCE)
    text = to_markdown(report)
    assert len(text.encode()) <= LIMIT_BYTES
    assert "### Failed (900)" in text
    assert all(f"`case {n}`" in text for n in range(900))
    assert "897 more" in text


def test_failures_are_never_left_out(check: Callable[..., CheckResult]) -> None:
    report = Report.of(many(check, 5000, "fail"), TOLERANCE)
    text = to_markdown(report)
    assert len(text.encode()) > LIMIT_BYTES
    assert all(f"`case {n}`" in text for n in range(5000))


def test_many_reasons_to_skip_are_counted(check: Callable[..., CheckResult]) -> None:
    skipped = [check("levels.match", "skip", detail=f"reason {n} {'y' * 2000}") for n in range(60)]
    assert "10 more reasons left out here" in to_markdown(Report.of(skipped, TOLERANCE))


@pytest.mark.parametrize("name", ["a|b", "a`b``c", "`", "<b>", "a_b*c", "[x](y)", "a\nb", "\\|", "\\"])
def test_names_and_details_are_shown_as_they_are(name: str, check: Callable[..., CheckResult]) -> None:
    report = Report.of(
        [check(case=name, detail=name, compared=1), check(case="second", verdict="fail", detail=name)], TOLERANCE
    )
    shown = name.replace("\n", " ").replace("<", "&lt;").replace(">", "&gt;")
    (row,) = [row for row in cells(to_markdown(report)) if row[0] == "outputs.match"]
    assert [cell.strip() for cell in row] == ["outputs.match", "model/base", shown, shown]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.add(tag)


def test_quoting_neither_notifies_anybody_nor_adds_markup(hostile_report: Report) -> None:
    text = to_markdown(hostile_report)
    outside_code = re.sub(r"<code>.*?</code>", "", rendered(text), flags=re.DOTALL)
    assert "someone" in outside_code
    assert not re.search(r"@\w|#\d", outside_code)
    tags = Tags()
    tags.feed(rendered(text))
    assert tags.found <= {
        "h2", "h3", "p", "strong", "code", "ul", "li", "br", "sub", "details", "summary",
        "table", "thead", "tbody", "tr", "th", "td",
    }  # fmt: skip
    assert "\n# heading" not in text
