"""Source pictures for an image processor, made in code: uint8 [height, width, 3], RGB."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from onnxport.exporters.inputs.seed import seeded

Picture = np.ndarray


def _gradient(side: int) -> Picture:
    ramp = np.linspace(0, 255, side)
    red, green = np.meshgrid(ramp, ramp)
    return _rgb(red, green, 255 - (red + green) / 2)


def _noise(side: int) -> Picture:
    return seeded("noise").integers(0, 256, (side, side, 3), dtype=np.uint8)


def _flat(*colour: int) -> Callable[[int], Picture]:
    return lambda side: np.full((side, side, 3), colour, dtype=np.uint8)


def _checkered(height: int, width: int) -> Picture:
    """Squares on a gradient: edges in both directions, and no two corners alike."""
    rows, columns = np.mgrid[0:height, 0:width]
    cell = max(min(height, width) // 6, 1)
    squares = 255 * ((rows // cell + columns // cell) % 2)
    return _rgb(squares, 255 * columns / width, 255 * rows / height)


def _rgb(*channels: np.ndarray) -> Picture:
    return np.stack(channels, axis=-1).round().astype(np.uint8)


PICTURES: Mapping[str, Callable[[int], Picture]] = {
    "gradient": _gradient,
    "noise": _noise,
    "black": _flat(0, 0, 0),
    "white": _flat(255, 255, 255),
    "colour": _flat(210, 40, 90),
    "wide": lambda side: _checkered(side, side * 3 // 2),
    "tall": lambda side: _checkered(side * 2, side),
}
"""What a picture shows, and the function that makes one with a shorter side of that many pixels."""
