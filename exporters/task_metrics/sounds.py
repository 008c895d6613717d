"""WAV files to what a bundle's feature extractor makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.errors import DatasetError
from onnxport.exporters.preprocessing import load_feature_extractor
from onnxport.verify.runners import one_line

FILES = ("audio", "path")
"""Columns of sound files."""


class Sounds:
    """A bundle's feature extractor, at work on WAV files of its own sampling rate.

    Raises:
        DatasetError: the bundle has none.
        SourceError: it cannot be loaded.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._extractor = load_feature_extractor(bundle.path, trust_remote_code=False)
        if self._extractor is None:
            raise DatasetError(f"{bundle.path} has no preprocessor_config.json, which says how sounds become inputs")

    def make(self, file: Path) -> dict[str, np.ndarray]:
        """Returns the inputs of one file, each of one row.

        Raises:
            DatasetError: it is no WAV file, has another sampling rate, or the extractor fails.
        """
        assert self._extractor is not None
        wave = read_wave(file, int(self._extractor.sampling_rate))
        from onnxport.exporters.inputs.audio_layout import extract

        made: dict[str, Any] = dict(extract(self._extractor, [wave]))
        return {name: np.asarray(array) for name, array in made.items()}


def read_wave(file: Path, rate: int) -> np.ndarray:
    """Returns the samples of a WAV file, the mean of its channels: float32 [samples], from -1 to 1.

    Raises:
        DatasetError: it is no WAV file, is empty, or has another sampling rate than `rate` (in Hz).
    """
    from scipy.io import wavfile

    try:
        found, samples = wavfile.read(file)
    except (ValueError, OSError, EOFError) as e:
        raise DatasetError(f"{file} is no WAV file: {one_line(e)}; convert it") from e
    if found != rate:
        raise DatasetError(f"{file} has {found} samples per second, and the model takes {rate}; resample it")
    if not samples.size:
        raise DatasetError(f"{file} has no samples; remove it")
    if samples.dtype == np.uint8:
        samples = (samples.astype(np.float32) - 128) / 128
    elif samples.dtype.kind == "i":
        samples = samples.astype(np.float32) / -float(np.iinfo(samples.dtype).min)
    channels: np.ndarray = samples.astype(np.float32).reshape(len(samples), -1)
    return np.asarray(channels.mean(axis=1))
