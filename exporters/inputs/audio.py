"""Inputs for a model that hears: waveforms or spectrograms, as its own feature extractor makes them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from onnxport.exporters.axes import axis_range, named_axes
from onnxport.exporters.errors import SignatureError
from onnxport.exporters.exportable import Arrays
from onnxport.exporters.inputs import waveforms
from onnxport.exporters.inputs.audio_layout import (
    PRINCIPAL,
    AudioLayout,
    default_extractor,
    extract,
    failure,
    find_layout,
    require_fit,
)
from onnxport.exporters.inputs.seed import seeded
from onnxport.exporters.manifest import Preprocessing
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, Dim, Vocabulary

if TYPE_CHECKING:
    from onnxport.exporters.checkpoint import Checkpoint

# At trace time; no length of audio is that small, so that no axis is mistaken for another.
_EXAMPLE_BATCH = 2


@dataclass(frozen=True)
class AudioInputs:
    """Makes audio inputs.

    Attributes:
        inputs: input name to its dimensions: float `input_values` or `input_features`, and int64 masks.
        batch: the name of the batch axis.
        length: the name of the axis that follows the length of the audio; None: all audio has one length.
        shortest: least size of `length` that the model takes.
        traced: size of `length` at trace time.
        static: axes with a fixed size.
        dtype: numpy's name of the float inputs' dtype.
        extractor: transformers' feature extractor.
        found: whether the checkpoint has it, or it is the default of its class.
    """

    inputs: Mapping[str, tuple[Dim, ...]]
    batch: str
    length: str | None
    shortest: int
    traced: int
    static: Mapping[str, int]
    dtype: str
    extractor: Any
    found: bool = True

    @property
    def principal(self) -> str:
        return next(name for name in self.inputs if name in PRINCIPAL)

    @property
    def mask(self) -> str | None:
        return next((name for name in self.inputs if name != self.principal), None)

    @property
    def axes(self) -> dict[str, AxisRange]:
        least = {self.batch: 1} | ({self.length: self.shortest} if self.length is not None else {})
        return {axis: axis_range(axis, self.static, size) for axis, size in least.items()}

    @property
    def example(self) -> dict[str, int]:
        return self._sizes(_EXAMPLE_BATCH, self.traced)

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        return {}

    @property
    def preprocessing(self) -> Preprocessing:
        extractor = self.extractor
        return Preprocessing(
            padding_side=getattr(extractor, "padding_side", None),
            sampling_rate=int(extractor.sampling_rate),
            feature_size=getattr(extractor, "feature_size", None),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        if self.found:
            return ()
        kind, rate = type(self.extractor).__name__, self.extractor.sampling_rate
        return (
            f"the checkpoint has no preprocessor_config.json: inputs are made by the default {kind} at {rate} Hz, "
            "which need not be how the model was trained",
        )

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        """Normalised audio as noise, N(0, 1); nothing masked."""
        made = {}
        for name, dims in self.inputs.items():
            shape = [dim if isinstance(dim, int) else sizes[dim] for dim in dims]
            made[name] = self._typed(name, rng.normal(size=shape) if name == self.principal else np.ones(shape))
        return made

    def cases(self, suite: str) -> list[Case]:
        """See `InputMaker.cases`."""
        cases = [*self._random(suite), *self._padded(), *self._sounds(suite)]
        if suite != "quick":
            cases += self._odd_values()
        return list({case.name: case for case in reversed(cases)}.values())[
            ::-1
        ]  # static axes make sizes fall together

    def _sizes(self, batch: int, length: int) -> dict[str, int]:
        asked = {self.batch: batch} | ({self.length: length} if self.length is not None else {})
        return {axis: self.static.get(axis, size) for axis, size in asked.items()}

    def _random(self, suite: str) -> list[Case]:
        """Around the shortest audio and the traced one, never at either's multiples: strides divide many of those."""
        least, traced = self.shortest, self.traced
        pairs = [(1, least), (3, (least + traced) // 2), (1, 2 * traced + 3)]
        if suite != "quick":
            pairs += [(4, least + 1), (1, traced - 1), (1, 4 * traced + 7)]
        if suite == "full":
            pairs += [(8, traced + 5), (2, 3 * traced + 1), (1, 16 * traced)]
        pairs = [(batch, length) for batch, length in pairs if length >= least]
        cases = []
        for sizes in (self._sizes(batch, length) for batch, length in pairs):
            name = f"random.{'x'.join(map(str, sizes.values()))}"
            cases.append(self._case(name, self.sample(sizes, seeded(name))))
        return cases

    def _padded(self) -> list[Case]:
        """Padding on the right and on the left; the second row keeps the shortest audio there is, and none less: models
        that pool over real frames answer NaN, or fail, where there are none."""
        if self.mask is None or self.length is None:
            return []
        sizes = self._sizes(3, self.traced + 2)
        length = sizes[self.length]
        shortest = min(self.shortest, length)
        cases = []
        for side in ("right", "left"):
            inputs = self.sample(sizes, seeded(f"padding.{side}"))
            for row, kept in zip(range(sizes[self.batch]), (max(length // 2, shortest), shortest), strict=False):
                padded = slice(kept, None) if side == "right" else slice(None, length - kept)
                self._along(inputs[self.principal][row], padded)[...] = self._padding_value
                inputs[self.mask][row, padded] = 0
            cases.append(self._case(f"padding.{side}", inputs))
        return cases

    def _sounds(self, suite: str) -> list[Case]:
        """Audio through the feature extractor."""
        rate = int(self.extractor.sampling_rate)
        rng = seeded("audio")
        kinds = {
            "audio.lengths": [
                waveforms.voice(0.31, rate, rng),
                waveforms.tone(0.2, rate),
                waveforms.noise(0.11, rate, rng),
            ],
            "audio.silence": [waveforms.silence(0.15, rate)],
        }
        if suite != "quick":
            kinds["audio.loud"] = [waveforms.clipped(0.23, rate), waveforms.voice(0.23, rate, rng)]
            kinds["audio.long"] = [waveforms.voice(2.03, rate, rng)]
        if suite == "full":
            kinds["audio.longer"] = [waveforms.voice(7.01, rate, rng), waveforms.noise(1.3, rate, rng)]
        return [self._case(name, self._extract(sounds)) for name, sounds in kinds.items()]

    def _odd_values(self) -> list[Case]:
        """One value everywhere, and values far outside of what normalised audio has."""
        sizes = self._sizes(1, self.traced + 4)
        inputs = {name: self.sample(sizes, seeded(name)) for name in ("values.zero", "values.large")}
        inputs["values.zero"][self.principal][...] = 0
        inputs["values.large"][self.principal][...] *= 20
        return [self._case(name, arrays) for name, arrays in inputs.items()]

    def _case(self, name: str, inputs: Arrays) -> Case:
        return Case(name, inputs, self.mask)

    def _extract(self, sounds: list[np.ndarray]) -> Arrays:
        """What the extractor makes, with as many rows as a static batch asks for, and as long as the axis has to be."""
        rows = self.static.get(self.batch, len(sounds))
        made = extract(self.extractor, [sounds[i % len(sounds)] for i in range(rows)])
        return {name: self._typed(name, self._fitted(name, made[name])) for name in self.inputs}

    def _fitted(self, name: str, array: np.ndarray) -> np.ndarray:
        """Padded to the shortest audio, or padded and cut to a static length."""
        if self.length is None or self.length not in self.inputs[name]:
            return array
        position = self.inputs[name].index(self.length)
        wanted = self.static.get(self.length, max(array.shape[position], self.shortest))
        array = np.take(array, range(min(wanted, array.shape[position])), axis=position)
        widths = [(0, wanted - array.shape[i]) if i == position else (0, 0) for i in range(array.ndim)]
        return np.pad(array, widths, constant_values=self._padding_value if name == self.principal else 0)

    def _along(self, row: np.ndarray, where: slice) -> np.ndarray:
        """A view of one row of the principal input at some positions of `length`."""
        position = self.inputs[self.principal].index(str(self.length)) - 1
        return row[(*[slice(None)] * position, where)]

    @property
    def _padding_value(self) -> float:
        return float(getattr(self.extractor, "padding_value", 0.0) or 0.0)

    def _typed(self, name: str, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array, dtype=self.dtype if name == self.principal else "int64")


def audio_inputs(checkpoint: Checkpoint, module: nn.Module | None = None) -> AudioInputs:
    """What the feature extractor makes and forward takes; without one, the default of transformers for the model type.

    Args:
        module: takes the audio; None: the checkpoint's model. The encoder of an encoder-decoder, for example.

    Raises:
        SignatureError: the model needs an input that cannot be made.
        RecipeError: axes that do not fit.
        SourceError: the feature extractor fails, or belongs to another model; there is none.
    """
    module = checkpoint.model if module is None else module
    extractor = checkpoint.processors.feature_extractor
    found = extractor is not None
    if extractor is None:
        extractor = default_extractor(checkpoint)
    if extractor is None:
        raise SignatureError(
            f"{type(module).__name__} takes audio, and the checkpoint has no preprocessor_config.json that tells how "
            f"it is made, nor does transformers know of one for {checkpoint.config.model_type}; add it"
        )
    accepted = tuple(inspect.signature(module.forward).parameters)
    layout = find_layout(extractor, accepted, type(module).__name__)
    axis = next(iter(layout.example), None)
    names, static = named_axes(layout.inputs, checkpoint.recipe)
    shape = layout.inputs[layout.principal]
    renamed = {str(old): str(new) for old, new in zip(shape, names[layout.principal], strict=True)}
    maker = AudioInputs(
        inputs=names,
        batch=renamed["batch"],
        length=None if axis is None else renamed[axis],
        shortest=1,
        traced=1 if axis is None else layout.example[axis],
        static=static,
        dtype=checkpoint.recipe.dtype,
        extractor=extractor,
        found=found,
    )
    return _with_shortest(maker, layout, module, checkpoint.config)


def _with_shortest(maker: AudioInputs, layout: AudioLayout, module: nn.Module, config: Any) -> AudioInputs:
    """Runs the model on real audio, and then on shorter and shorter: what the strides leave nothing of is no audio.

    Raises:
        SourceError: the model fails on what the extractor makes.
    """
    sound = waveforms.voice(0.31, int(maker.extractor.sampling_rate), seeded("audio"))
    made = extract(maker.extractor, [sound] * 2)
    arrays = {name: maker._typed(name, made[name]) for name in layout.inputs}
    require_fit(module, layout, arrays, maker.extractor, config)
    if maker.length is None or maker.length in maker.static:
        return replace(maker, shortest=maker.static.get(str(maker.length), 1))
    fails, works = 0, maker.traced
    while works - fails > 1:
        middle = (fails + works) // 2
        inputs = maker.sample({maker.batch: 1, maker.length: middle}, seeded("shortest"))
        fails, works = (fails, middle) if failure(module, inputs) is None else (middle, works)
    return replace(maker, shortest=works)
