from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from onnxport.verify.percentiles import percentiles


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([1, 2, 3, 4], 50, 2),  # two of four do not exceed it
        ([1, 2, 3, 4], 50.1, 3),
        ([1, 2, 3, 4], 75, 3),
        ([1, 2, 3, 4], 100, 4),
        ([4, 3, 2, 1], 1, 1),
        ([7], 99.9, 7),
        ([0, 0, 0, 8], 75, 0),
        ([0, 0, 0, 8], 76, 8),
        ([2.0**-149, 0], 100, 2.0**-149),  # the smallest float32
        ([1, math.inf], 50, 1),
        ([1, math.inf], 51, math.inf),
        ([1e300], 50, math.inf),  # beyond float32
        ([1.0, 1.0000001], 100, np.float32(1.0000001)),  # neighbours in float32: only the last bit differs
    ],
)
def test_by_hand(values: list[float], percent: float, expected: float) -> None:
    assert percentiles(lambda: [np.array(values)], [percent]) == {percent: expected}


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
def test_the_value_of_that_rank_over_any_blocks(size: int) -> None:
    values = np.abs(np.random.default_rng(size).standard_t(2, size)).astype(np.float32)
    ranks = {
        percent: math.ceil(Fraction(str(percent)) * size / 100) for percent in (0.1, 50.0, 90.0, 99.0, 99.9, 100.0)
    }
    found = percentiles(lambda: iter(np.array_split(values, 3)), list(ranks))
    assert found == {percent: np.sort(values)[rank - 1] for percent, rank in ranks.items()}


def test_nothing_has_no_percentiles() -> None:
    assert percentiles(lambda: [], [50]) == {}
    assert percentiles(lambda: [np.empty(0)], [50]) == {}
