"""Which shape a feature extractor gives audio, which of its dimensions follow the length, and what the model takes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from onnxport.exporters.errors import SignatureError, SourceError
from onnxport.exporters.exportable import Arrays, name_outputs, to_tensors
from onnxport.exporters.inputs import waveforms
from onnxport.verify.contract import Dim
from onnxport.verify.runners import one_line

if TYPE_CHECKING:
    from onnxport.exporters.checkpoint import Checkpoint

PRINCIPAL = ("input_values", "input_features")
"""What the extractors call audio."""

# Both odd numbers of samples at the usual rates, and neither a multiple of a usual stride.
_SHORT_SECONDS, _LONG_SECONDS = 0.2501, 0.7501
_ROWS = 2


@dataclass(frozen=True)
class AudioLayout:
    """The inputs that an extractor makes and a model takes.

    Attributes:
        inputs: input name to one entry per dimension; the first is "batch", one that follows the length is "samples" (a
            waveform) or "frames", the others are fixed.
        example: the size of the axis that follows the length for a quarter of a second; empty where all audio is padded
            or cut to one length.
    """

    inputs: Mapping[str, tuple[Dim, ...]]
    example: Mapping[str, int]

    @property
    def principal(self) -> str:
        return next(name for name in self.inputs if name in PRINCIPAL)

    @property
    def masks(self) -> tuple[str, ...]:
        return tuple(name for name in self.inputs if name != self.principal)


def find_layout(extractor: Any, accepted: Sequence[str], what: str) -> AudioLayout:
    """Runs the extractor on audio of two lengths and compares the shapes.

    Args:
        accepted: the inputs that forward takes.
        what: takes them, for messages.

    Raises:
        SignatureError: the extractor makes nothing that forward takes, or of a shape that has no description here.
        SourceError: the extractor fails on audio.
    """
    rate = int(extractor.sampling_rate)
    sounds = [waveforms.voice(s, rate, np.random.default_rng(0)) for s in (_SHORT_SECONDS, _LONG_SECONDS)]
    short, long = (extract(extractor, [sound] * _ROWS) for sound in sounds)
    names = [name for name in accepted if name in short]
    kind = type(extractor).__name__
    if not any(name in PRINCIPAL for name in names):
        raise SignatureError(f"{what} takes {', '.join(accepted)} and {kind} makes {', '.join(short)}: none in common")
    inputs: dict[str, tuple[Dim, ...]] = {}
    example: dict[str, int] = {}
    for name in names:
        dims: list[Dim] = ["batch"]
        if short[name].ndim != long[name].ndim or not short[name].shape[:1] == long[name].shape[:1] == (_ROWS,):
            raise SignatureError(f"{kind} makes {name} {_shapes(short, long, name)} of {_ROWS} sounds: no batch axis")
        for sizes in zip(short[name].shape[1:], long[name].shape[1:], strict=True):
            if sizes[0] == sizes[1]:
                dims.append(int(sizes[0]))
                continue
            axis = "samples" if sizes == tuple(map(len, sounds)) else "frames"
            dims.append(axis)
            if example.setdefault(axis, int(sizes[0])) != sizes[0] or len(example) > 1 or dims.count(axis) > 1:
                raise SignatureError(
                    f"{kind} makes {name} {_shapes(short, long, name)} of audio of two lengths; expected one dimension "
                    "that follows the length, the same in all inputs"
                )
        inputs[name] = tuple(dims)
        if name not in PRINCIPAL and not name.endswith("mask"):
            raise SignatureError(f"{kind} makes an input {name!r}; onnxport can make {', '.join(PRINCIPAL)} and masks")
    return AudioLayout(inputs, example)


def extract(extractor: Any, sounds: Sequence[np.ndarray]) -> Arrays:
    """Returns what the extractor makes of waveforms, as it does it when nothing is asked, in one batch.

    Raises:
        SourceError: it fails.
    """
    parameters = inspect.signature(extractor.__call__).parameters
    # Some pad everything to one length unless told otherwise; the others must be told to pad at all.
    pads = "padding" in parameters and not parameters["padding"].default
    options = {"padding": True} if pads else {}
    try:
        made = extractor(list(sounds), sampling_rate=extractor.sampling_rate, return_tensors="np", **options)
        return {str(name): np.asarray(array) for name, array in made.items()}
    except Exception as e:
        lengths = ", ".join(str(len(sound)) for sound in sounds)
        raise SourceError(
            f"{type(extractor).__name__} of the checkpoint fails on audio of {lengths} samples: {type(e).__name__}: "
            f"{one_line(e)}; mend preprocessor_config.json"
        ) from e


def default_extractor(checkpoint: Checkpoint) -> Any | None:
    """Returns the extractor that transformers has for the model type, with the config's sizes; None: it has none."""
    from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING

    config = checkpoint.config
    try:
        kind = FEATURE_EXTRACTOR_MAPPING[type(config)]
    except KeyError:
        return None
    options = {}
    for name in inspect.signature(kind).parameters:
        value = getattr(config, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            options[name] = value
    bins = _bins(config)
    if bins is not None and "feature_size" in inspect.signature(kind).parameters:
        options["feature_size"] = bins
    return kind(**options)


def require_fit(module: nn.Module, layout: AudioLayout, arrays: Arrays, extractor: Any, config: Any) -> None:
    """The model runs on what its extractor makes.

    Raises:
        SourceError: it does not: the extractor is another model's.
    """
    reason = failure(module, arrays)
    if reason is None:
        return
    shown = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
    bins = _bins(config)
    expected = f"; config.json asks for {bins} bins" if bins is not None and bins not in layout_sizes(layout) else ""
    raise SourceError(
        f"the feature extractor does not belong to the model: {type(extractor).__name__} makes {shown}, on which "
        f"{type(module).__name__} fails with {reason}{expected}; put the model's own preprocessor_config.json into the "
        "checkpoint"
    )


def layout_sizes(layout: AudioLayout) -> set[int]:
    """The fixed sizes of the principal input."""
    return {dim for dim in layout.inputs[layout.principal] if isinstance(dim, int)}


def failure(module: nn.Module, arrays: Arrays) -> str | None:
    """Returns why the module gives no finite numbers on these inputs, None if it does."""
    try:
        with torch.inference_mode():
            outputs = name_outputs(module(**to_tensors(arrays)))
    except Exception as e:  # noqa: BLE001  (whatever a model raises is the answer)
        return f"{type(e).__name__}: {one_line(e)}"
    bad = [name for name, t in outputs.items() if t.is_floating_point() and not bool(torch.isfinite(t).all())]
    return f"NaN or infinity in {', '.join(bad)}" if bad else None


def _bins(config: Any) -> int | None:
    """How many bins of a spectrogram the config says that the model reads."""
    for name in ("num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim"):
        value = getattr(config, name, None)
        if isinstance(value, int):
            return value
    return None


def _shapes(short: Arrays, long: Arrays, name: str) -> str:
    return f"{list(short[name].shape)} and {list(long[name].shape)}"
