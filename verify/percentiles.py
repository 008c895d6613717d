"""Percentiles of the errors of an output, exact to float32, in memory that does not grow with the output."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

_BITS = 16  # float32 in two halves: a table of 2^16 counts for each
_LOW = np.uint32((1 << _BITS) - 1)


def percentiles(blocks: Callable[[], Iterable[np.ndarray]], wanted: Sequence[float]) -> Mapping[float, float]:
    """Returns each percentile by nearest rank: the smallest value that at least so many percent do not exceed.

    Floats from 0 to infinity, read as unsigned integers, keep their order. So the upper half of the bits of the value
    of a rank is found by counting, and the lower half by counting again among the values that share the upper one.

    Args:
        blocks: gives all values, none of them negative or NaN, in blocks of any shape; called twice.
        wanted: in percent, above 0 and up to 100.

    Returns:
        Empty when there are no values.
    """
    counts = np.zeros(1 << _BITS, dtype=np.int64)
    for block in blocks():
        counts += np.bincount(_ordered(block) >> _BITS, minlength=1 << _BITS)
    total = int(counts.sum())
    if not total:
        return {}
    below = np.concatenate([[0], np.cumsum(counts)])
    ranks = {percent: max(1, math.ceil(percent * total / 100 - 1e-9)) for percent in wanted}
    upper = {percent: int(np.searchsorted(below, rank, side="left")) - 1 for percent, rank in ranks.items()}
    lower = {half: np.zeros(1 << _BITS, dtype=np.int64) for half in upper.values()}
    for block in blocks():
        values = _ordered(block)
        for half, found in lower.items():
            found += np.bincount((values & _LOW)[values >> _BITS == half], minlength=1 << _BITS)
    result = {}
    for percent, rank in ranks.items():
        half = upper[percent]
        low = int(np.searchsorted(np.cumsum(lower[half]), rank - below[half], side="left"))
        result[percent] = float(np.array((half << _BITS) | low, dtype=np.uint32).view(np.float32))
    return result


def _ordered(block: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # beyond float32 is infinite, which is as bad
        values: np.ndarray = np.abs(block.ravel()).astype(np.float32).view(np.uint32)
    return values
