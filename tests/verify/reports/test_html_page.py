from __future__ import annotations

import math
import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from onnxport.verify import CheckResult, Report, Tolerance
from onnxport.verify.report import Verified
from onnxport.verify.reports.html_page import to_html
from onnxport.verify.reports.html_plots import Axis
from onnxport.verify.reports.html_style import STYLE

VOID = {"meta", "br"}
NO_CONTENT = {"rect", "line", "path", "circle"}


class Page(HTMLParser):
    """Reads a page strictly: every tag closes the one that is open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        assert tag in NO_CONTENT | {"use"}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def count(self, tag: str, kind: str) -> int:
        return sum(name == tag and kind in (attributes.get("class") or "").split() for name, attributes in self.tags)


def test_verdict_on_top_and_failures_before_the_rest(make_report: Callable[..., Report]) -> None:
    text = to_html(make_report())
    assert "<title>fail: onnxport verification</title>" in text
    order = ["Does not agree", "25 passed, 4 failed, 3 skipped", "What failed", "Checks by variant", "How close each",
             "Error by output and case", "Every check", "Skipped", "Environment and tolerance"]  # fmt: skip
    assert sorted(order, key=text.index) == order
    passed = to_html(make_report(failing=False))
    assert "Agrees with the reference" in passed
    assert "What failed" not in passed


def test_the_title_is_the_name_of_what_was_verified(make_report: Callable[..., Report], subject: Verified) -> None:
    page = to_html(make_report(failing=False).model_copy(update={"subject": subject}))
    assert "<title>pass: out-1.0</title>" in page
    told = "out-1.0 · tiny-bert · BertModel · fill-mask · engine dynamo · suite full · onnxport 0.1.0 · torch 2.9.1"
    assert f'<p class="subject">{told}</p>' in page


def test_every_failure_has_its_detail_and_numbers(make_report: Callable[..., Report]) -> None:
    page = Page(to_html(make_report()))
    assert page.count("div", "item") == 4
    assert "text zh, hidden" in page.text
    assert "max rel diff" in page.text


def test_failures_beyond_the_first_are_folded_and_not_dropped(check: Callable[..., CheckResult]) -> None:
    failed = [check(verdict="fail", case=f"case {n}", worst_ratio=2.0 + n) for n in range(40)]
    text = to_html(Report.of(failed, Tolerance(rtol=0, atol=0)))
    assert Page(text).count("div", "item") == 40
    assert "35 more like this" in text
    assert text.index("case 39") < text.index("35 more like this") < text.index("case 34")


def test_a_mark_for_every_comparison_and_a_row_for_every_case(make_report: Callable[..., Report]) -> None:
    page = Page(to_html(make_report()))
    assert page.count("use", "mark") == 24 + 3, "and three in the legend"
    assert page.count("div", "row") == (3 + 1) + 2 * (4 + 1), "distribution and two outputs, each with its axis"
    assert page.count("rect", "fails") == 2, "14.5 and infinity"


def test_the_largest_error_of_every_layer_in_the_order_of_depth(check: Callable[..., CheckResult]) -> None:
    ratios = {"hidden_states.10": 0.5, "hidden_states.2": 0.25, "logits": 0.125}
    checks = [check(output=output, case=case, worst_ratio=ratio / (1 + (case == "b")))
              for output, ratio in ratios.items() for case in ("a", "b")]  # fmt: skip
    tolerance = Tolerance(rtol=1e-3, atol=1e-4)
    page = to_html(Report.of(checks, tolerance))
    depth = page.split('id="depth"')[1].split("</section>")[0]
    rows = re.findall(r'<div class="row"><span>(\d+)</span>.*?<span class="value">([\d.]+)</span>', depth)
    assert rows == [("2", "0.25"), ("10", "0.5")]
    assert 'id="depth"' not in to_html(Report.of([c for c in checks if c.output == "logits"], tolerance))


def test_checks_over_all_outputs_share_a_chart(check: Callable[..., CheckResult]) -> None:
    checks = [check(name, worst_ratio=0.5, compared=1) for name in ("iobinding.match", "levels.match", "levels.match")]
    page = Page(to_html(Report.of(checks, Tolerance(rtol=0, atol=0))))
    assert page.count("div", "chart") == 2, "the distribution and this one"
    assert page.count("div", "row") == (1 + 1) + (2 + 1)
    assert "All outputs together" in page.text


def test_a_report_without_numbers_has_no_plots(empty_report: Report, check: Callable[..., CheckResult]) -> None:
    text = to_html(empty_report)
    Page(text)
    assert "No check compared any values" in text
    assert "Error by output" not in text
    assert "Error by output" not in to_html(Report.of([check("graph.axes")], Tolerance(rtol=0, atol=0)))


def test_nothing_is_loaded_from_elsewhere_and_nothing_runs(make_report: Callable[..., Report]) -> None:
    text = to_html(make_report())
    tags = {tag for tag, _ in Page(text).tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert not re.search(r"(?i)https?:|url\(|@import|@font-face|src=|srcset|data:|javascript:", text)
    assert "default-src 'none'" in text
    attributes = [name for _, given in Page(text).tags for name in given]
    assert not [name for name in attributes if name.startswith("on")]
    assert all(href.startswith("#") for _, given in Page(text).tags if (href := given.get("href")))


def test_any_text_is_shown_and_none_is_markup(hostile_report: Report, make_report: Callable[..., Report]) -> None:
    page = Page(to_html(hostile_report))
    assert not {tag for tag, _ in page.tags} - {tag for tag, _ in Page(to_html(make_report())).tags}
    assert "<script>document.title='owned'</script>" in page.text
    assert "\\x00\\x1b[31m\\x85\\ufffe\\ud800\\u202e" in page.text


def test_ids_are_unique(make_report: Callable[..., Report]) -> None:
    ids = [given["id"] for _, given in Page(to_html(make_report())).tags if "id" in given]
    assert len(set(ids)) == len(ids)


def test_the_axis_has_the_limit_and_every_ratio_on_it() -> None:
    axis = Axis.over([0.0, 3e-7, 0.4, 55.0, math.inf, math.nan])
    assert (axis.low, axis.high) == (-7, 2)
    places = [axis.position(ratio) for ratio in (0.0, 1e-7, 3e-7, 1.0, 55.0, 100.0, math.inf)]
    assert places == sorted(places)
    assert places[0] > 0.0
    assert axis.position(math.nan) == places[-1] < 100.0
    assert 0 in axis.ticks()
    assert len(axis.ticks()) <= 5
    assert (Axis.over([]).low, Axis.over([]).high) == (-2, 1)
    assert len(Axis.over([1e-300, 1e300]).ticks()) <= 6


def test_a_ratio_of_exactly_one_passes(check: Callable[..., CheckResult]) -> None:
    def bars(ratio: float) -> int:
        page = Page(to_html(Report.of([check(worst_ratio=ratio, compared=1)], Tolerance(rtol=0, atol=0))))
        return page.count("rect", "fails")

    assert (bars(1.0), bars(1.00001), bars(0.0), bars(math.inf)) == (0, 1, 0, 1)


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrast(theme: int) -> None:
    """WCAG AA: 4.5 for text, 3 for the marks of a plot."""
    colours = dict(
        re.findall(r"--([\w-]+): (#[0-9a-f]{6});", re.findall(r":root \{(.*?)\n *\}", STYLE, re.DOTALL)[theme])
    )
    needed = {
        **dict.fromkeys(("text", "quiet", "pass", "fail"), 4.5),
        **dict.fromkeys(("v0", "v1", "v2", "v3", "v4", "v5"), 3),
    }
    for name, least in needed.items():
        for page in ("page", "fail-page"):
            dark, light = sorted([_luminance(colours[name]), _luminance(colours[page])])
            assert (light + 0.05) / (dark + 0.05) >= least, (name, page)
