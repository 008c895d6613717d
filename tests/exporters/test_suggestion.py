"""The nearest name, and how a message about an unknown one ends."""

from __future__ import annotations

import pytest

from onnxport.exporters.suggestion import expected_one_of, nearest


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("optimised", ["base", "optimized"], "optimized"),
        ("cpuexecutionprovidr", ["AzureExecutionProvider", "CPUExecutionProvider"], "CPUExecutionProvider"),
        ("BASE", ["base", "optimized"], "base"),
        ("zebra", ["base", "optimized"], None),
        ("x", [], None),
    ],
)
def test_nearest(name: str, known: list[str], expected: str | None) -> None:
    assert nearest(name, known) == expected


def test_the_end_of_a_message() -> None:
    assert expected_one_of("basse", ["base", "fp16", "int8"]) == "expected base, fp16 or int8; did you mean 'base'?"
    assert expected_one_of("zebra", ["base"]) == "expected base"
    assert expected_one_of("zebra", []) == "nothing of that kind is known here"
