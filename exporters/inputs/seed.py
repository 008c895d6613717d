"""A case's name is its seed: the same inputs in every suite, every run and every bundle."""

from __future__ import annotations

import zlib

import numpy as np


def seeded(name: str) -> np.random.Generator:
    """Returns the source of random numbers that belongs to a name."""
    return np.random.default_rng(zlib.crc32(name.encode()))
