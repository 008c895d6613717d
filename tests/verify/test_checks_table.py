from __future__ import annotations

import re

import pytest

from onnxport.verify.checks import CHECKS, load_check


def test_ids() -> None:
    assert list(CHECKS) == [
        "files.sha256",
        "graph.checker",
        "graph.opset",
        "graph.names",
        "graph.axes",
        "session.loads",
        "session.provider",
        "outputs.match",
        "outputs.finite",
        "outputs.sensitive",
        "golden.match",
        "fusion.expected",
    ]


@pytest.mark.parametrize("check", CHECKS)
def test_every_line_resolves(check: str) -> None:
    family = check.partition(".")[0]
    assert re.fullmatch(rf"onnxport\.verify\.checks\.{family}:check_\w+", CHECKS[check])
    assert callable(load_check(check))
