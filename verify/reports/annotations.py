"""Workflow commands (`::error file=…,title=…::message`) that GitHub and compatible CI systems show on a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onnxport.verify.reports.outline import Failed, counts, failures, problem, sections
from onnxport.verify.reports.printable import printable

if TYPE_CHECKING:
    from onnxport.verify.report import CheckResult, Report

SHOWN = 10
"""GitHub shows ten errors of a step and drops the rest without a word."""

Files = Mapping[tuple[str | None, str | None], str]
"""Component and variant to the path of its graph."""


def to_annotations(report: Report, files: Files | None = None) -> str:
    """Returns one line per failed check, or one notice that all passed. The worst of each kind come first.

    Where there are more failures than are shown, every kind of failure has its worst one in, and the last line counts
    the others.

    Args:
        report: what is annotated.
        files: the file that each annotation is put at; (None, None): the bundle's own.
    """
    trouble = problem(report)
    lines = (
        [_command("error", {"title": "verdict", "file": (files or {}).get((None, None))}, trouble)] if trouble else []
    )
    failed = _every_kind_first(failures(sections(report)))
    shown = failed if len(failed) <= SHOWN else failed[: SHOWN - 1]
    lines += [_error(check, files or {}) for check in shown]
    if len(failed) > len(shown):
        left = f"{len(failed) - len(shown)} more failed checks; the report lists them all"
        lines.append(_command("error", {"title": "onnxport verify"}, left))
    if not lines:
        lines.append(_command("notice", {"title": "onnxport verify"}, f"{report.verdict}: {counts(report)}"))
    return "\n".join(lines) + "\n"


def _every_kind_first(failed: Sequence[Failed]) -> list[CheckResult]:
    """Returns the worst of every kind, then the second of every kind, and so on."""
    turns = [(turn, check) for kind in failed for turn, check in enumerate(kind.checks)]
    return [check for _, check in sorted(turns, key=lambda pair: pair[0])]


def _error(check: CheckResult, files: Files) -> str:
    where = [part for part in (check.component, check.variant, check.case, check.output) if part]
    properties = {"file": files.get((check.component, check.variant)), "title": " · ".join([check.id, *where])}
    return _command("error", properties, check.detail)


def _command(kind: str, properties: Mapping[str, str | None], message: str) -> str:
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items() if value)
    return f"::{kind} {given}::{_data(message)}"


def _data(text: str) -> str:
    """The escapes of the workflow command syntax: a message stays in its line and cannot start another command."""
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
