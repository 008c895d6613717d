"""What a task's metric is made of: batches for a model, answers read from its outputs, scores of the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from onnxport.verify.cases import Case


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs for one run of a model.

    Attributes:
        case: the inputs; its first rows are the items, what follows only fills up a fixed batch size.
        items: which items of the data set these are, by their numbers.
        real: for each item which positions along the sequence are its own, the others being padding.
    """

    case: Case
    items: tuple[int, ...]
    real: tuple[slice, ...] = ()


@dataclass(frozen=True, eq=False)
class Score:
    """One number for the answers to a data set; higher is better.

    A bootstrap asks for the score of thousands of draws. So a score also says what of each example it is made from:
    `of` the sum of `counts` over all examples is `value`, but for rounding.

    Attributes:
        name: "accuracy".
        value: the score, as the metrics library computes it.
        chance: what the best answer that does not look at the input would get.
        counts: [examples, any].
        of: sums of counts over a draw of examples, [..., any], to the score of each draw, [...].
    """

    name: str
    value: float
    chance: float
    counts: np.ndarray
    of: Callable[[np.ndarray], np.ndarray]


def mean_score(name: str, value: float, chance: float, parts: np.ndarray, weights: np.ndarray | None = None) -> Score:
    """Returns a score that is a mean of `parts`, [examples]: of one part per example, or of `weights` many."""
    counts = np.stack([parts, np.ones(len(parts)) if weights is None else weights], axis=1)
    return Score(name, value, chance, counts.astype(np.float64), lambda sums: sums[..., 0] / sums[..., 1])


class TaskMetric(Protocol):
    """A data set as a question to models of one task.

    An item is what a model is run on once; an example is what is drawn in a bootstrap, and may have several items.
    """

    @property
    def examples(self) -> int:
        """How many there are."""

    @property
    def batches(self) -> Iterable[Batch]:
        """All items, in any order; made anew for every model where they are too large to keep."""

    def read(self, outputs: Mapping[str, np.ndarray], batch: Batch) -> Sequence[Any]:
        """Returns the answer to each item of a batch. An output with NaN gives an answer that is wrong."""

    def scores(self, answers: Sequence[Any]) -> tuple[Score, ...]:
        """Returns the scores of the answers to all items, in the order of their numbers."""
