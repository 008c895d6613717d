"""Random token ids, without those that mean something to a model."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np


def draw_ids(
    shape: tuple[int, ...], vocab_size: int, reserved: Collection[int], rng: np.random.Generator
) -> np.ndarray:
    """Returns random ids below `vocab_size`, none of them `reserved`: int64 of that shape."""
    ids = rng.integers(0, vocab_size - len(reserved), shape)
    for taken in sorted(reserved):
        ids += ids >= taken
    return ids.astype(np.int64)
