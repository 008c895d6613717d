from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from onnxport.verify import Report
from onnxport.verify.reports.html_latency import axis_ticks
from onnxport.verify.reports.html_page import to_html
from onnxport.verify.reports.latency import how, latency_table, timed
from onnxport.verify.reports.markdown import to_markdown


def test_variants_stand_in_the_order_of_the_sections_and_sizes_as_measured(timed_report: Report) -> None:
    groups = timed(timed_report)
    assert [group.title for group in groups] == ["batch 1, sequence 4", "batch 2, sequence 512"]
    assert [[one.variant for one in group.variants] for group in groups] == [["base", "optimized", "int8"]] * 2
    assert how(timed_report) == "A process for each variant, warmed up; 8 to 200 runs for each size; 2 threads"


def test_components_are_told_where_there_are_several(timed_report: Report) -> None:
    assert timed_report.latency is not None
    other = timed_report.latency[0].model_copy(update={"component": "decoder", "sizes": {}, "case": "fixed"})
    groups = timed(timed_report.with_latency([*timed_report.latency, other]))
    assert [group.title for group in groups] == [
        "model: batch 1, sequence 4",
        "model: batch 2, sequence 512",
        "decoder: fixed",
    ]


def test_a_row_for_each_variant_and_size(timed_report: Report) -> None:
    table = latency_table(timed_report)
    assert table is not None
    assert table.head == ("size", "variant", "p50 ms", "p90 ms", "min ms", "runs", "threads")
    assert table.rows[0] == ("batch 1, sequence 4", "base", "1.5", "2.25", "1.25", "200", "2")
    assert len(table.rows) == 6
    text = to_markdown(timed_report)
    assert "### Latency" in text
    assert "| batch 2, sequence 512 | int8 | 37.5 | 56.2 | 31.2 | 8 | 2 |" in text


def test_a_chart_for_each_size_with_a_bar_for_each_variant(timed_report: Report) -> None:
    section = to_html(timed_report).split('id="latency"')[1].split("</section>")[0]
    assert section.count("<h3>") == 2
    rows = re.findall(r'<div class="row"><span>(\w+)</span>.*?<span class="value">([\d.]+) ms</span>', section)
    assert rows[:3] == [("base", "1.5"), ("optimized", "1.5"), ("int8", "1.5")]
    slow = re.findall(r'class="bar slow v\d" [^>]*? x="([\d.]+)%" width="([\d.]+)%"', section)
    median = re.findall(r'class="bar v\d" [^>]*? width="([\d.]+)%"', section)
    assert len(slow) == len(median) == 6
    for (left, width), end in zip(slow, median, strict=True):
        assert left == end, "the light part begins where the bar ends"
        assert float(left) + float(width) <= 100


def test_a_variant_has_one_colour_on_the_whole_page(timed_report: Report) -> None:
    page = to_html(timed_report)
    legend = dict(re.findall(r'<use class="mark (v\d)" href="#mark\d" x="50%" y="50%"/></svg>(\w+)</li>', page))
    section = page.split('id="latency"')[1].split("</section>")[0]
    drawn = re.findall(r'<div class="row"><span>(\w+)</span>.*?class="bar (v\d)"', section)
    assert len(legend) == 3
    assert {legend[colour] == variant for variant, colour in drawn} == {True}


def test_without_it_a_report_says_nothing_of_it(make_report: Callable[..., Report]) -> None:
    report = make_report()
    assert (timed(report), latency_table(report)) == ([], None)
    assert "atency" not in to_html(report) + to_markdown(report)
    assert "atency" not in to_markdown(report.with_latency([])), "asked for, and nothing could be timed"


def test_names_are_no_markup(hostile_text: str, timed_report: Report) -> None:
    assert timed_report.latency is not None
    named: dict[str, object] = {"component": hostile_text, "variant": hostile_text, "sizes": {hostile_text: 3}}
    report = timed_report.with_latency([timed_report.latency[0].model_copy(update=named), timed_report.latency[1]])
    assert "<script" not in to_html(report)
    assert "<img" not in to_html(report)
    assert "<script" not in to_markdown(report).replace("\\<script", "")


@pytest.mark.parametrize(
    ("largest", "expected"),
    [(0.0123, [0, 0.005, 0.01, 0.015]), (4.0, [0, 1, 2, 3, 4]), (4.1, [0, 2, 4, 6]), (375.5, [0, 100, 200, 300, 400])],
)
def test_ticks_are_round_and_hold_the_largest(largest: float, expected: list[float]) -> None:
    assert axis_ticks(largest) == pytest.approx(expected)
