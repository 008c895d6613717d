"""The noise floor: how far the reference itself is from the same function in float64. It gives a tolerance a reason."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onnxport.verify.tolerance import ElementTolerance

LOOSE = 1000.0
"""A tolerance of more noise floors than this could hide a fault, and is said to be loose."""


@dataclass(frozen=True)
class Noise:
    """Largest differences from float64, over real positions where all three are finite.

    Attributes:
        floor: of the reference.
        error: of the candidate.
    """

    floor: float
    error: float

    @property
    def ratio(self) -> float:
        """`error` in floors: about 1 where the candidate is as good as the reference."""
        if self.error == 0.0:
            return 0.0
        return self.error / self.floor if self.floor else math.inf


def looseness(tolerance: ElementTolerance, rms: float, floor: float) -> float | None:
    """Returns how many noise floors are allowed at an element of the reference's RMS; None: no more than `LOOSE`."""
    allowed = tolerance.atol + tolerance.rtol * rms
    if allowed <= LOOSE * floor:
        return None
    return allowed / floor if floor else math.inf


def measure_noise(
    reference: np.ndarray, candidate: np.ndarray, precise: np.ndarray, real: np.ndarray | None = None
) -> Noise | None:
    """Compares both with `precise`, which was computed in float64.

    Args:
        reference, candidate, precise: one output, in one shape.
        real: bool, broadcasts to the output, True at real positions; None: all are.

    Returns:
        None where there is nothing to measure: another shape, no floats, or no element that counts.
    """
    if precise.dtype != np.float64 or not reference.shape == candidate.shape == precise.shape:
        return None
    counted = np.isfinite(precise) & np.isfinite(reference) & np.isfinite(candidate)
    if real is not None:
        counted &= real
    if not counted.any():
        return None
    exact = precise[counted]
    floor = np.abs(reference[counted].astype(np.float64) - exact).max()
    error = np.abs(candidate[counted].astype(np.float64) - exact).max()
    return Noise(float(floor), float(error))
