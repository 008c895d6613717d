"""JUnit XML, which every CI system shows: a test suite per variant, a test case per check, case and output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from onnxport.verify.reports.outline import WHOLE_BUNDLE, Section, flattened, name_of, numbers, problem, sections
from onnxport.verify.reports.printable import printable, single_line

if TYPE_CHECKING:
    from onnxport.verify.report import CheckResult, Report


def to_junit(report: Report) -> str:
    """Returns the report as JUnit XML.

    Suites and classes begin with the name of what was verified: a CI run may have the reports of several models.

    A verdict that no check explains (nothing was compared) is a failed test case of its own, so that no CI system takes
    a report of nothing for a success.
    """
    root = Element("testsuites", name="onnxport verify")
    found = sections(report)
    trouble = problem(report)
    if trouble is not None and not any(section.title == WHOLE_BUNDLE for section in found):
        found.insert(0, Section(None, None, WHOLE_BUNDLE, ()))
    for section in found:
        _add_suite(root, section, report, trouble if section.title == WHOLE_BUNDLE else None)
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _add_suite(root: Element, section: Section, report: Report, trouble: str | None) -> None:
    place = ".".join(single_line(part) for part in (section.component, section.variant) if part) or WHOLE_BUNDLE
    # A full stop would begin a package of its own.
    name = (name_of(report) or "").replace(".", "_")
    place = ".".join(filter(None, (single_line(name), place)))
    verdicts = Counter(check.verdict for check in section.checks)
    suite = SubElement(
        root,
        "testsuite",
        name=place,
        tests=str(len(section.checks) + (trouble is not None)),
        failures=str(verdicts["fail"] + (trouble is not None)),
        errors="0",
        skipped=str(verdicts["skip"]),
    )
    properties = SubElement(suite, "properties")
    for name, value in _subject(report):
        SubElement(properties, "property", name=f"subject.{single_line(name)}", value=single_line(value))
    for number, note in enumerate(report.notes or ()):
        SubElement(properties, "property", name=f"note.{number}", value=single_line(note))
    for name, value in sorted(report.environment.items()):
        SubElement(properties, "property", name=f"environment.{single_line(name)}", value=single_line(value))
    for name, value in flattened(report.tolerance).items():
        SubElement(properties, "property", name=f"tolerance.{single_line(name)}", value=value)
    if trouble is not None:
        case = SubElement(suite, "testcase", classname=f"onnxport.{place}", name="verdict")
        SubElement(case, "failure", message=single_line(trouble), type="verdict").text = printable(trouble)
    for check, name in zip(section.checks, _names(section.checks), strict=True):
        _add_case(suite, check, classname=f"onnxport.{place}", name=name)


def _subject(report: Report) -> list[tuple[str, str]]:
    """What was verified, as in report.json."""
    if report.subject is None:
        return []
    known = report.subject.model_dump(exclude={"versions"}, exclude_none=True)
    return [*known.items(), *sorted(report.subject.versions.items())]


def _add_case(suite: Element, check: CheckResult, *, classname: str, name: str) -> None:
    case = SubElement(suite, "testcase", classname=classname, name=name)
    detail = printable(check.detail)
    told = "\n".join([detail, *(f"{name} = {_exact(value)}" for name, value in numbers(check).items())])
    if check.verdict == "fail":
        SubElement(case, "failure", message=single_line(check.detail), type=single_line(check.id)).text = told
    elif check.verdict == "skip":
        SubElement(case, "skipped", message=single_line(check.detail))
    else:
        SubElement(case, "system-out").text = told


def _exact(value: Any) -> str:
    """As report.json has it, for programs: all 6 digits, no thousands separators."""
    return f"{value:.6g}" if isinstance(value, float) else single_line(str(value))


def _names(checks: Sequence[CheckResult]) -> list[str]:
    """Returns a name of its own for every test case: CI systems take two of one name for one."""
    seen: Counter[str] = Counter()
    names = []
    for check in checks:
        place = ", ".join(single_line(part) for part in (check.case, check.output) if part)
        name = f"{single_line(check.id)} [{place}]" if place else single_line(check.id)
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return names
