"""Audio to make cases of: float32 waveforms in [-1, 1], mono, made from a formula and so the same everywhere."""

from __future__ import annotations

import numpy as np


def silence(seconds: float, rate: int) -> np.ndarray:
    """Zeros: [seconds * rate] samples."""
    return np.zeros(_samples(seconds, rate), dtype=np.float32)


def tone(seconds: float, rate: int, frequency_hz: float = 440.0) -> np.ndarray:
    """A sine at half of full scale."""
    return (0.5 * np.sin(2 * np.pi * frequency_hz * _times(seconds, rate))).astype(np.float32)


def noise(seconds: float, rate: int, rng: np.random.Generator) -> np.ndarray:
    """White noise, RMS a tenth of full scale."""
    return np.clip(rng.normal(0.0, 0.1, _samples(seconds, rate)), -1.0, 1.0).astype(np.float32)


def clipped(seconds: float, rate: int) -> np.ndarray:
    """A sine that is recorded far too loud: nearly a square wave at full scale."""
    return np.asarray(np.clip(8 * tone(seconds, rate, 150.0), -1.0, 1.0), dtype=np.float32)


def voice(seconds: float, rate: int, rng: np.random.Generator) -> np.ndarray:
    """What speech looks like to a model: harmonics of a gliding pitch, in syllables four to the second, and breath."""
    times = _times(seconds, rate)
    pitch_hz = 120.0 + 30.0 * np.sin(2 * np.pi * 0.7 * times)
    phase = 2 * np.pi * np.cumsum(pitch_hz) / rate
    harmonics = np.sum([np.sin(n * phase) / n for n in range(1, 13)], axis=0)
    syllables = np.sin(np.pi * 4.0 * times) ** 2
    breath = rng.normal(0.0, 0.01, len(times))
    return np.asarray(np.clip(0.25 * harmonics * syllables + breath, -1.0, 1.0), dtype=np.float32)


def _samples(seconds: float, rate: int) -> int:
    return int(seconds * rate)


def _times(seconds: float, rate: int) -> np.ndarray:
    """In seconds, one entry per sample."""
    times: np.ndarray = np.arange(_samples(seconds, rate)) / rate
    return times
