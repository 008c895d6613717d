"""A report in the formats that people and CI systems read. Adding one is a file of its own and a line here.

Every format is a pure function of the report: equal reports give equal text, without timestamps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxport.verify.import_target import import_target

if TYPE_CHECKING:
    from onnxport.verify.report import Report

FORMATS: dict[str, str] = {
    ".json": "onnxport.verify.report:Report.to_json",
    ".xml": "onnxport.verify.reports.junit:to_junit",
    ".md": "onnxport.verify.reports.markdown:to_markdown",
    ".html": "onnxport.verify.reports.html_page:to_html",
}
"""Suffix of a file to "module:function"."""


def render(report: Report, suffix: str) -> str:
    """Returns the report in the format of files with that suffix (".json", ".xml" for JUnit, ".md", ".html").

    Raises:
        VerificationError: there is no such format.
    """
    from onnxport.verify.errors import VerificationError

    if suffix.lower() not in FORMATS:
        raise VerificationError(f"There is no report format {suffix!r}; reports are written as {', '.join(FORMATS)}.")
    text: str = import_target(FORMATS[suffix.lower()])(report)
    return text
