from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote

import pytest

from onnxport.verify import CheckResult, Report, Tolerance
from onnxport.verify.reports.annotations import SHOWN, to_annotations

COMMAND = re.compile(r"::(error|notice) ((?:file|title)=[^:,\n]*(?:,title=[^:,\n]*)?)::([^\n\r]*)")


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Reads workflow commands as a CI system does: one a line, properties by comma, escapes undone."""
    found = []
    for line in text.splitlines():
        match = COMMAND.fullmatch(line)
        assert match, line
        kind, properties, message = match.groups()
        pairs = dict(pair.split("=", 1) for pair in properties.split(","))
        found.append((kind, {key: unquote(value) for key, value in pairs.items()}, unquote(message)))
    return found


def test_every_failure_at_its_file(make_report: Callable[..., Report]) -> None:
    files = {("model", "optimized"): "out/a,b:c%/model_optimized.onnx"}
    found = commands(to_annotations(make_report(), files))
    assert len(found) == 4
    assert {kind for kind, _, _ in found} == {"error"}
    _, properties, message = found[0]
    assert properties == {
        "file": "out/a,b:c%/model_optimized.onnx",
        "title": "outputs.match · model · optimized · text zh · hidden",
    }
    assert message == "largest difference 1e-07"


def test_a_pass_is_one_notice(make_report: Callable[..., Report]) -> None:
    ((kind, _, message),) = commands(to_annotations(make_report(failing=False)))
    assert (kind, message) == ("notice", "pass: 29 passed, 0 failed, 3 skipped")


@pytest.mark.parametrize(("failing", "lines"), [(SHOWN, SHOWN), (SHOWN + 1, SHOWN), (300, SHOWN)])
def test_no_more_than_are_shown_and_the_rest_is_counted(
    failing: int, lines: int, check: Callable[..., CheckResult]
) -> None:
    failed = [check(verdict="fail", case=str(n), worst_ratio=2.0 + n) for n in range(failing - 1)]
    last = check("session.provider", "fail", variant="optimized", detail="dropped")
    found = commands(to_annotations(Report.of([*failed, last], Tolerance(rtol=0, atol=0))))
    assert len(found) == lines
    assert any(message == "dropped" for _, _, message in found), "every kind of failure is shown"
    assert found[0][1]["title"].endswith(f"· {failing - 2}"), "the worst is shown"
    if failing > SHOWN:
        assert found[-1][2].startswith(f"{failing - SHOWN + 1} more failed checks")


def test_no_text_starts_a_command_of_its_own(hostile_report: Report, hostile_text: str) -> None:
    files = {(check.component, check.variant): hostile_text for check in hostile_report.checks}
    ((kind, properties, message),) = commands(to_annotations(hostile_report, files))
    assert kind == "error"
    assert "::error::forged" in message
    assert "100%" in message
    assert set(properties) == {"file", "title"}
