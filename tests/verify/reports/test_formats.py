from __future__ import annotations

from collections.abc import Callable

import pytest

from onnxport.verify import Report
from onnxport.verify.errors import VerificationError
from onnxport.verify.import_target import import_target
from onnxport.verify.report import Verified
from onnxport.verify.reports import FORMATS, render
from onnxport.verify.reports.annotations import to_annotations
from onnxport.verify.reports.printable import number, printable, single_line


def test_formats() -> None:
    assert list(FORMATS) == [".json", ".xml", ".md", ".html"]
    for target in FORMATS.values():
        assert callable(import_target(target))


def test_json_is_the_report_itself(make_report: Callable[..., Report]) -> None:
    report = make_report()
    assert render(report, ".json") == report.to_json()


def test_what_is_no_format(make_report: Callable[..., Report]) -> None:
    assert render(make_report(), ".HTML").startswith("<!DOCTYPE html>")
    with pytest.raises(VerificationError, match=r"'\.pdf'; reports are written as \.json, \.xml, \.md, \.html"):
        render(make_report(), ".pdf")


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_says_what_was_verified_and_has_the_notes(
    suffix: str, make_report: Callable[..., Report], subject: Verified
) -> None:
    report = make_report().model_copy(update={"subject": subject}).with_notes(["the weights are others"])
    for told in ("out-1.0", "tiny-bert", "BertModel", "2.9.1", "the weights are others"):
        assert told in render(report, suffix)


@pytest.mark.parametrize("suffix", FORMATS)
def test_equal_reports_give_equal_text(suffix: str, make_report: Callable[..., Report]) -> None:
    report = make_report(failing=False)
    shuffled = Report.of([*report.checks[7:], *report.checks[:7]], report.tolerance, provider="CPUExecutionProvider")
    assert report == shuffled
    assert render(report, suffix) == render(shuffled, suffix)
    assert render(report, suffix) == render(Report.from_json(report.to_json()), suffix)


@pytest.mark.parametrize("suffix", [".xml", ".md", ".html"])
def test_the_order_of_the_environment_changes_nothing(suffix: str, make_report: Callable[..., Report]) -> None:
    report = make_report(failing=False)
    turned = report.model_copy(update={"environment": dict(reversed(report.environment.items()))})
    assert report == turned
    assert render(report, suffix) == render(turned, suffix)


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_failure_and_its_numbers_are_in_every_format(suffix: str, make_report: Callable[..., Report]) -> None:
    text = render(make_report(), suffix)
    assert "fail" in text
    assert "padding left 2x12" in text
    assert "14.5" in text


@pytest.mark.parametrize("render_it", [*(lambda r, s=s: render(r, s) for s in FORMATS), to_annotations])
def test_a_report_of_nothing_never_looks_like_a_success(
    render_it: Callable[[Report], str], empty_report: Report
) -> None:
    assert "no check compared any values" in render_it(empty_report).replace("No check", "no check")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 🙂\n", "plain é 漢 🙂\n"),
        ("\x00\x1b\x7f\x85", "\\x00\\x1b\\x7f\\x85"),
        ("\ud800\ufffe", "\\ud800\\ufffe"),
        ("a\u202eb\u2066", "a\\u202eb\\u2066"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_single_line() -> None:
    assert single_line(" a\n\n b\tc\r") == "a b c\\r"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1024, "1,024"),
        (0.123456, "0.1235"),
        (1e-9, "1e-09"),
        (float("inf"), "∞"),
        (float("-inf"), "-∞"),
        (float("nan"), "NaN"),
        (True, "True"),
        ("a\nb", "a b"),
    ],
)
def test_number(value: object, shown: str) -> None:
    assert number(value) == shown
