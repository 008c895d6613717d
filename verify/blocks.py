"""Two arrays block by block, so that comparing a gigabyte of logits needs a few megabytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_BLOCK_ELEMENTS = 2**16


@dataclass(frozen=True)
class Block:
    """Some rows of both arrays: [rows, columns]. `start` is the flat position of the first element.

    A row runs along the last axis. Where that has one element, which has no direction, all elements are one row.
    """

    start: int
    reference: np.ndarray
    candidate: np.ndarray
    real: np.ndarray


def blocks_of(reference: np.ndarray, candidate: np.ndarray, real: np.ndarray | None) -> Iterator[Block]:
    """Yields all of two arrays of one shape; `real` broadcasts to it, None: there is no padding."""
    if reference.size == 0:
        return
    columns = reference.shape[-1] if reference.ndim and reference.shape[-1] > 1 else reference.size
    rows = reference.size // columns
    expected, actual = reference.reshape(rows, columns), candidate.reshape(rows, columns)
    if real is None:
        mask = np.ones((1, 1), dtype=bool)
    else:  # one column is enough where the mask does not change along a row
        wide = real.ndim > 0 and real.shape[-1] != 1
        leading = reference.shape[:-1]
        mask = np.broadcast_to(real, (*leading, columns if wide else 1)).reshape(rows, -1)
    step = max(1, _BLOCK_ELEMENTS // columns)
    for row in range(0, rows, step):
        part = slice(row, row + step)
        b = expected[part]
        here = mask if len(mask) == 1 else mask[part]
        yield Block(row * columns, b, actual[part], np.broadcast_to(here, b.shape))
