from __future__ import annotations

import re

import pytest

from onnxport.verify.checks import CHECKS, load_check
from onnxport.verify.errors import VerificationError
from onnxport.verify.suites import SMALLEST_SUITE, SUITES, in_suite


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
        "outputs.sensitive/power",
        "golden.match",
        "fusion.expected",
        "rows.independent",
        "padding.invariant",
        "iobinding.match",
        "inputs.rejected",
        "levels.match",
        "reload.match",
        "tokenizer.match",
        "metric.kept",
    ]


@pytest.mark.parametrize("check", CHECKS)
def test_every_line_resolves(check: str) -> None:
    family = check.partition("/")[2] or check.partition(".")[0]
    module = {"padding": "padding_invariance", "inputs": "rejection", "metric": "metric_kept"}.get(family, family)
    assert re.fullmatch(rf"onnxport\.verify\.checks\.{module}:check_\w+", CHECKS[check])
    assert callable(load_check(check))


def test_every_check_is_in_a_suite_and_suites_grow() -> None:
    assert set(SMALLEST_SUITE) == set(CHECKS)
    quick, standard, full = ({check for check in CHECKS if in_suite(check, suite)} for suite in SUITES)
    assert quick < standard < full == set(CHECKS)
    with pytest.raises(VerificationError, match=r"no suite 'ful'\. Ask for one of quick, standard, full"):
        in_suite("outputs.match", "ful")
