from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable

import pytest

from onnxport.verify import CheckResult, Report, Tolerance
from onnxport.verify.report import Verified
from onnxport.verify.reports.junit import to_junit

CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "properties": {"property"},
    "property": set(),
    "testcase": {"failure", "skipped", "system-out"},
    "failure": set(),
    "skipped": set(),
    "system-out": set(),
}
ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped"},
    "property": {"name", "value"},
    "testcase": {"classname", "name"},
    "failure": {"message", "type"},
    "skipped": {"message"},
}


def parsed(report: Report) -> ET.Element:
    """Parses the report; it must have the elements, attributes and counts of the JUnit schema and no others."""
    root = ET.fromstring(to_junit(report).encode())
    for element in root.iter():
        assert {child.tag for child in element} <= CHILDREN[element.tag]
        assert set(element.attrib) == ATTRIBUTES.get(element.tag, set())
    for suite in (root, *root):
        cases = list(suite.iter("testcase"))
        ended = Counter(child.tag for case in cases for child in case)
        assert suite.get("tests") == str(len(cases))
        assert suite.get("failures") == str(ended["failure"])
        assert suite.get("skipped") == str(ended["skipped"])
        assert suite.get("errors") == "0"
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(set(names)) == len(names)
    return root


def test_a_suite_per_variant_and_a_case_per_check(make_report: Callable[..., Report]) -> None:
    report = make_report()
    root = parsed(report)
    assert [suite.get("name") for suite in root] == ["bundle", "model.base", "model.optimized", "model.int8"]
    assert root.get("tests") == str(len(report.checks))
    assert root.get("failures") == str(report.summary.failed) == "4"
    assert root.get("skipped") == str(report.summary.skipped)


def test_suites_and_classes_have_the_name_of_what_was_verified(
    make_report: Callable[..., Report], subject: Verified
) -> None:
    """Two models in one CI run stay two."""
    suites = parsed(make_report().model_copy(update={"subject": subject}))
    assert [suite.get("name") for suite in suites][:2] == ["out-1_0.bundle", "out-1_0.model.base"]
    assert {case.get("classname") for case in suites[0].iter("testcase")} == {"onnxport.out-1_0.bundle"}
    properties = {one.get("name"): one.get("value") for one in suites[0].iter("property")}
    assert (properties["subject.task"], properties["subject.torch"]) == ("fill-mask", "2.9.1")


def test_a_failure_has_its_detail_and_numbers(make_report: Callable[..., Report]) -> None:
    root = parsed(make_report())
    failed = {
        case.get("name"): case.find("failure") for case in root.iter("testcase") if case.find("failure") is not None
    }
    failure = failed["outputs.match [text zh, hidden]"]
    assert failure is not None
    assert failure.get("type") == "outputs.match"
    assert failure.get("message") == "largest difference 1e-07"
    assert (failure.text or "").splitlines() == [
        "largest difference 1e-07",
        "compared = 1024",
        "max_abs_diff = 3e-07",
        "max_rel_diff = nan",
        "worst_ratio = inf",
        "rtol = 0.001",
        "atol = 0.0001",
    ]


def test_a_skip_has_its_reason_and_a_pass_its_numbers(make_report: Callable[..., Report]) -> None:
    cases = {case.get("name"): case for case in parsed(make_report())[1].iter("testcase")}
    skipped = cases["fusion.expected"].find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "no fusion is required or recorded"
    assert "compared = 1024" in (cases["outputs.match [zeros, pooled]"].findtext("system-out") or "")


def test_environment_and_tolerance_are_properties(make_report: Callable[..., Report]) -> None:
    report = make_report()
    for suite in parsed(report):
        found = {p.get("name"): p.get("value") for p in suite.iter("property")}
        assert found["environment.provider"] == "CPUExecutionProvider"
        assert found["environment.onnxruntime"] == report.environment["onnxruntime"]
        assert (found["tolerance.rtol"], found["tolerance.atol"]) == ("0.001", "0.0001")


def test_a_report_of_nothing_is_a_failed_test(empty_report: Report) -> None:
    root = parsed(empty_report)
    assert root.get("failures") == "1"
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None
    assert "no check compared any values" in (failure.get("message") or "")


def test_nothing_compared_beside_checks_of_the_bundle(check: Callable[..., CheckResult]) -> None:
    report = Report.of([check("files.sha256", component=None, variant=None)], Tolerance(rtol=0, atol=0))
    (suite,) = parsed(report)
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")


def test_any_text_is_valid_xml(hostile_report: Report) -> None:
    root = parsed(hostile_report)
    assert root.get("failures") == "1"
    text = "".join(root.itertext())
    assert "<script>document.title='owned'</script>" in text
    assert "]]> -->\"'&amp;" in text
    assert "\\x00\\x1b[31m\\x85\\ufffe\\ud800\\u202e" in text


@pytest.mark.parametrize("character", [chr(code) for code in (*range(32), 0x7F, 0x80, 0x9F, 0xD800, 0xFFFE, 0xFFFF)])
def test_every_control_character(character: str, check: Callable[..., CheckResult]) -> None:
    parsed(Report.of([check(verdict="fail", detail=f"a{character}b", case=character)], Tolerance(rtol=0, atol=0)))
