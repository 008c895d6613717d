from __future__ import annotations

import json
import math

import onnxruntime
import pytest

from onnxport.verify import CheckResult, ElementTolerance, Report, Statistics, Tolerance
from onnxport.verify.errors import VerificationError

TOLERANCE = Tolerance(rtol=1e-3, atol=1e-4, per_output={"logits": ElementTolerance(rtol=0.01, atol=0.0)})


def match(verdict: str = "pass", **fields: object) -> CheckResult:
    return CheckResult(**{"id": "outputs.match", "verdict": verdict, "detail": "d", "compared": 5, **fields})


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        ([match()], "pass"),
        ([match(id="golden.match")], "pass"),
        ([match(), match("skip")], "pass"),
        ([match(), match("fail")], "fail"),
        ([match(), match("fail", id="graph.axes", compared=None)], "fail"),
        ([match(compared=0)], "fail"),
        ([match("skip")], "fail"),
        ([match(id="files.sha256", compared=None)], "fail"),
        ([match(id="outputs.sensitive")], "fail"),  # says nothing about the candidate
        ([], "fail"),
    ],
)
def test_verdict(checks: list[CheckResult], verdict: str) -> None:
    report = Report.of(checks, TOLERANCE)
    assert report.verdict == verdict
    assert report.summary.passed + report.summary.failed + report.summary.skipped == len(checks)
    assert (report.detail is not None) == (verdict == "fail" and not report.summary.failed)


def test_json_round_trip_in_stable_order() -> None:
    checks = [match(variant=v, case=c, output=o) for v in ("b", "a") for c in ("2", "1") for o in ("y", "x")]
    one = Report.of(checks, TOLERANCE, provider="CPUExecutionProvider")
    two = Report.of(checks[::-1], TOLERANCE, provider="CPUExecutionProvider")
    assert one.to_json() == two.to_json()
    assert Report.from_json(one.to_json()) == one
    assert Report.from_json(one.to_json()).to_json() == one.to_json()
    document = json.loads(one.to_json())
    assert list(document) == ["schema_version", "verdict", "summary", "tolerance", "environment", "checks"]
    assert document["tolerance"] == {"rtol": 1e-3, "atol": 1e-4, "per_output": {"logits": {"rtol": 0.01, "atol": 0.0}}}
    assert document["environment"]["onnxruntime"] == onnxruntime.__version__
    assert set(document["environment"]) == {"python", "numpy", "onnx", "onnxruntime", "machine", "provider"}
    assert document["checks"][0] == {
        "id": "outputs.match", "variant": "a", "case": "1", "output": "x",
        "verdict": "pass", "detail": "d", "compared": 5,
    }  # fmt: skip


def test_statistics_survive_the_round_trip() -> None:
    report = Report.of([match()], Statistics(min_cosine=0.9, decisions={"logits": -1}))
    assert Report.from_json(report.to_json()).tolerance == Statistics(min_cosine=0.9, decisions={"logits": -1})


def test_numbers_are_rounded_and_json_stays_valid() -> None:
    check = match("fail", max_abs_diff=math.inf, worst_ratio=0.123456789, min_cosine=-math.inf, max_rel_diff=math.nan,
                  rms_error=-0.0)  # fmt: skip
    assert check.worst_ratio == 0.123457
    text = Report.of([check], TOLERANCE).to_json()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    stored = json.loads(text, parse_constant=refuse)["checks"][0]
    assert stored["max_abs_diff"] == "Infinity"
    assert stored["min_cosine"] == "-Infinity"
    assert stored["max_rel_diff"] == "NaN"
    assert str(stored["rms_error"]) == "0.0"
    back = Report.from_json(text).checks[0]
    assert back.max_abs_diff == math.inf
    assert math.isnan(back.max_rel_diff)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema_version": 2}'])
def test_what_is_no_report(text: str) -> None:
    with pytest.raises(VerificationError, match="no verification report of schema version 1"):
        Report.from_json(text)


def test_unknown_keys_are_refused() -> None:
    document = json.loads(Report.of([match()], TOLERANCE).to_json())
    document["verdikt"] = "pass"
    with pytest.raises(VerificationError, match="verdikt"):
        Report.from_json(json.dumps(document))
