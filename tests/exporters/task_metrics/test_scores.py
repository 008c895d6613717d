"""Scores and their bootstrap: numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxport.exporters.errors import DatasetError
from onnxport.exporters.task_metrics.bootstrap import loss_interval
from onnxport.exporters.task_metrics.classification import accuracy, macro_f1, predicted
from onnxport.exporters.task_metrics.labels import Labels
from onnxport.exporters.task_metrics.metric import Score, mean_score
from onnxport.exporters.task_metrics.question_answering import _exact, _f1


def each(*values: int) -> list[np.ndarray]:
    return [np.array([value]) for value in values]


def drawn(score: Score, examples: list[int]) -> float:
    return float(score.of(score.counts[examples].sum(axis=0)))


def test_accuracy_and_macro_f1_by_hand() -> None:
    expected, found = each(0, 0, 0, 1, 1, 2), each(0, 0, 1, 1, 2, -1)
    # class 0: 2 hits, 3 labels, 2 predictions: 4/5. class 1: 1, 2, 2: 1/2. class 2: 0, 1, 1: 0.
    assert (accuracy(expected, found).value, accuracy(expected, found).chance) == (0.5, 0.5)
    score = macro_f1(expected, found)
    assert score.value == pytest.approx((4 / 5 + 1 / 2) / 3)
    assert score.chance == pytest.approx((2 * 3 / (3 + 6)) / 3)  # always 0: 3 hits, 3 labels, 6 predictions


def test_an_example_may_have_several_decisions() -> None:
    expected = [np.array([0, 1, 1]), np.array([1])]
    found = [np.array([0, 1, 0]), np.array([0])]
    score = accuracy(expected, found)
    assert score.value == 0.5
    assert drawn(score, [0]) == pytest.approx(2 / 3)
    assert drawn(score, [1, 1]) == 0


@pytest.mark.parametrize("measure", [accuracy, macro_f1])
def test_a_draw_is_scored_as_the_library_scores_it(measure) -> None:
    rng = np.random.default_rng(3)
    expected = [rng.integers(0, 4, rng.integers(1, 4)) for _ in range(60)]
    found = [np.where(rng.random(len(one)) < 0.7, one, rng.integers(-1, 5, len(one))) for one in expected]
    score = measure(expected, found)
    assert drawn(score, list(range(60))) == pytest.approx(score.value)
    for seed in range(5):
        chosen = [*np.random.default_rng(seed).integers(0, 60, 60)]
        # All classes must be drawn: those of the whole data set are averaged over.
        assert len(np.unique(np.concatenate([expected[i] for i in chosen]))) == 4
        again = measure([expected[i] for i in chosen], [found[i] for i in chosen])
        assert drawn(score, chosen) == pytest.approx(again.value)


def test_nan_predicts_nothing() -> None:
    assert list(predicted(np.array([[1.0, 3.0], [np.nan, 0.0], [2.0, 1.0]]))) == [1, -1, 0]


def test_the_bootstrap_is_paired_and_reproducible() -> None:
    rng = np.random.default_rng(0)
    hits = (rng.random(400) < 0.7).astype(float)
    worse = hits.copy()
    worse[np.flatnonzero(hits)[:20]] = 0  # twenty more are wrong: a loss of 0.05
    reference, score = (mean_score("accuracy", v.mean(), 0.5, v) for v in (hits, worse))
    low, high = loss_interval(reference, score)
    assert (low, high) == loss_interval(reference, score)
    # Paired: the spread of the difference, sqrt(0.05 * 0.95 / 400) = 0.011, not of two scores, 0.033.
    assert low == pytest.approx(0.05 - 1.96 * 0.0109, abs=0.006)
    assert high == pytest.approx(0.05 + 1.96 * 0.0109, abs=0.006)
    assert loss_interval(reference, reference) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("answer", "right", "exact", "f1"),
    [
        ("The Old Town-Hall!", ["old townhall"], 1, 1),
        ("in the old hall", ["the hall"], 0, 2 * (1 / 3) * 1 / (1 / 3 + 1)),  # in old hall | hall
        ("a b b c", ["b b d"], 0, 2 * (2 / 3) * (2 / 3) / (4 / 3)),  # b b c | b b d
        ("b", ["b b"], 0, 2 * 1 * 0.5 / 1.5),
        ("x", ["y", "x"], 1, 1),
        ("", ["x"], 0, 0),
        ("the", ["a"], 1, 1),  # nothing is left of either
        ("", ["a"], 1, 1),
        (None, ["a"], 0, 0),  # NaN says nothing, not even that
        ("x", ["y"], 0, 0),
    ],
)
def test_answers_are_compared_as_squad_does(answer: str | None, right: list[str], exact: float, f1: float) -> None:
    assert _exact(answer, right) == exact
    assert _f1(answer, right) == pytest.approx(f1)


NAMES = {"0": "NEGATIVE", "1": "POSITIVE", "2": "0"}


@pytest.mark.parametrize(
    ("value", "number"),
    [("NEGATIVE", 0), ("positive", 1), (" Positive ", 1), (1, 1), ("1", 1), ("0", 2), (0, 0), ("2", 2)],
)
def test_labels_by_name_or_number(value: object, number: int) -> None:
    assert Labels(NAMES, 3, "a.csv").number(value, 1) == number


@pytest.mark.parametrize("value", ["neutral", 3, -1, "3", "-1", True, 1.0, None, ["NEGATIVE"]])
def test_labels_that_the_model_does_not_have(value: object) -> None:
    with pytest.raises(
        DatasetError, match=r"a.csv, example 7: the model has no label .*; expected NEGATIVE, POSITIVE or"
    ):
        Labels(NAMES, 3, "a.csv").number(value, 7)
    with pytest.raises(DatasetError, match="expected 0 to 2"):
        Labels(None, 3, "a.csv").number("x", 7)


def test_labels_whose_case_tells_them_apart() -> None:
    labels = Labels({"0": "May", "1": "may"}, 2, "a.csv")
    assert (labels.number("May", 1), labels.number("may", 1)) == (0, 1)
    with pytest.raises(DatasetError, match="no label 'MAY'"):
        labels.number("MAY", 1)


def test_a_score_without_examples_of_a_class_is_no_division_by_zero() -> None:
    score = macro_f1(each(0, 1), each(0, 1))
    assert drawn(score, [0, 0]) == 0.5
    assert not math.isnan(drawn(score, [1]))
