"""Scores of predicted classes, computed by scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.exporters.task_metrics.metric import Score, mean_score

NONE = -1
"""The class that a row of logits with NaN stands for: no label is it."""


def predicted(logits: np.ndarray) -> np.ndarray:
    """Returns the class of each row: int64, the shape without the last axis."""
    return np.where(np.isnan(logits).any(axis=-1), NONE, logits.argmax(axis=-1))


def accuracy(expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> Score:
    """Returns the share of labels that were predicted.

    Args:
        expected, found: for each example its labels and the predicted classes, int64 [decisions], at least one.
    """
    from sklearn.metrics import accuracy_score

    labels = np.concatenate(expected)
    value = float(accuracy_score(labels, np.concatenate(found)))
    chance = float(accuracy_score(labels, np.full_like(labels, _commonest(labels))))
    right = np.array([np.count_nonzero(a == b) for a, b in zip(found, expected, strict=True)])
    return mean_score("accuracy", value, chance, right, np.array([len(one) for one in expected]))


def macro_f1(expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> Score:
    """Returns the mean F1 of the classes that occur among the labels; arguments as of `accuracy`."""
    from sklearn.metrics import f1_score

    labels = np.concatenate(expected)
    classes = np.unique(labels)

    def measured(predictions: np.ndarray) -> float:
        return float(f1_score(labels, predictions, labels=classes, average="macro", zero_division=0))

    # F1 of a class is 2 * hits / (labels + predictions) of it.
    answers = np.concatenate(found)
    example = np.repeat(np.arange(len(expected)), [len(one) for one in expected])
    hits, both = np.zeros((2, len(expected), len(classes)))
    for counted, values in ((hits, labels[labels == answers]), (both, labels), (both, answers)):
        rows = example[labels == answers] if counted is hits else example
        known = np.isin(values, classes)
        np.add.at(counted, (rows[known], np.searchsorted(classes, values[known])), 1)

    def of(sums: np.ndarray) -> np.ndarray:
        twice, total = 2 * sums[..., : len(classes)], sums[..., len(classes) :]
        mean: np.ndarray = np.divide(twice, total, out=np.zeros_like(twice), where=total > 0).mean(axis=-1)
        return mean

    chance = measured(np.full_like(labels, _commonest(labels)))
    return Score("F1 (macro)", measured(answers), chance, np.concatenate([hits, both], axis=1), of)


def _commonest(labels: np.ndarray) -> int:
    """Of all answers that are always the same, the best by both scores."""
    classes, counts = np.unique(labels, return_counts=True)
    return int(classes[counts.argmax()])
