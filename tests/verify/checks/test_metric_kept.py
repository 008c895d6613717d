from __future__ import annotations

import math
from dataclasses import replace

import pytest

from onnxport.verify.checks.metric_kept import ScorePair, check_kept
from onnxport.verify.report import CheckResult

PAIR = ScorePair(
    component="model",
    variant="int8",
    dataset="reviews.csv",
    metric="accuracy",
    reference="pytorch",
    note="",
    examples=200,
    reference_score=0.90,
    score=0.90,
    chance=0.5,
    loss_interval=(-0.005, 0.005),
    max_loss=0.01,
)


def judged(**changes: object) -> CheckResult:
    (result,) = check_kept([replace(PAIR, **changes)])  # type: ignore[arg-type]
    return result


@pytest.mark.parametrize(
    ("score", "max_loss", "verdict"),
    [
        (0.90, 0.01, "pass"),
        (0.95, 0.0, "pass"),  # better than the reference
        (0.90, 0.0, "pass"),
        (0.89, 0.01, "pass"),  # on the boundary, though 0.90 - 0.89 > 0.01 in floats
        (0.8899, 0.01, "fail"),
        (0.8999, 0.0, "fail"),
        (0.8, 0.2, "pass"),
        (math.nan, 0.01, "fail"),
    ],
)
def test_a_loss_beyond_what_is_allowed_fails(score: float, max_loss: float, verdict: str) -> None:
    assert judged(score=score, max_loss=max_loss).verdict == verdict


def test_the_numbers_are_in_the_result() -> None:
    result = judged(score=0.86, loss_interval=(0.01, 0.07))
    assert (result.id, result.component, result.variant) == ("metric.kept", "model", "int8")
    assert (result.case, result.output, result.examples) == ("reviews.csv", "accuracy", 200)
    assert (result.reference_score, result.score, result.score_loss, result.chance_score) == (0.9, 0.86, 0.04, 0.5)
    assert (result.score_loss_low, result.score_loss_high, result.max_score_loss_allowed) == (0.01, 0.07, 0.01)
    assert result.detail == (
        "accuracy 0.86, of pytorch 0.9: a loss of 0.04, allowed 0.01; "
        "95 % interval of the loss 0.01 to 0.07, 200 examples"
    )


@pytest.mark.parametrize(
    ("interval", "told"),
    [((-0.03, 0.03), True), ((-0.005, 0.03), False), ((-0.03, 0.005), False), ((-0.01, 0.01), False)],
)
def test_too_few_examples_are_said(interval: tuple[float, float], told: bool) -> None:
    result = judged(loss_interval=interval)
    assert ("too few examples to tell" in result.detail) == told
    assert result.verdict == "pass"


@pytest.mark.parametrize("reference", [0.5, 0.3, math.nan])
def test_a_reference_at_chance_proves_nothing(reference: float) -> None:
    result = judged(reference_score=reference, score=reference)
    assert result.verdict == "fail"
    assert "pytorch is no better than chance (0.5)" in result.detail


def test_a_score_at_chance_is_skipped_where_another_one_can_tell() -> None:
    at_chance, other = check_kept([replace(PAIR, reference_score=0.5, score=0.5), replace(PAIR, metric="F1 (macro)")])
    assert (at_chance.verdict, other.verdict) == ("skip", "pass")
    worse, _ = check_kept([replace(PAIR, reference_score=0.5, score=0.2), replace(PAIR, metric="F1 (macro)")])
    assert worse.verdict == "fail"


def test_what_is_known_of_the_reference_is_said() -> None:
    assert judged(reference="base", note="base agrees with PyTorch by the stored report").detail.endswith(
        "200 examples; base agrees with PyTorch by the stored report"
    )
