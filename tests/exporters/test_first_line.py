from __future__ import annotations

import pytest

from onnxport.exporters.first_line import first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("\n  the head is missing \nTraceback: pages of it"), "the head is missing"),
        (RuntimeError(), "no message"),
        (OSError(" \n\t"), "no message"),
        ("x" * 1000, "x" * 400),
    ],
)
def test_first_line(error: object, line: str) -> None:
    assert first_line(error) == line
