"""Inputs for a decoder whose two graphs are one: those of either, with what the other takes beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from onnxport.exporters.components.encoder_decoder_modules import IDS, STATES
from onnxport.exporters.exportable import Arrays
from onnxport.exporters.inputs.decoder_steps import PAST, DecoderSteps
from onnxport.exporters.inputs.seed import seeded
from onnxport.exporters.manifest import Preprocessing
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, Dim, Vocabulary

USE_CACHE = "use_cache_branch"
"""The input that chooses: bool [1], true for a step with a cache."""
PAST_STATES = "past_encoder_sequence"
"""Axis of the keys and values of cross-attention, which are empty before the first step."""


@dataclass(frozen=True)
class MergedSteps:
    """Makes the inputs of `decoder_model_merged`.

    A first step is given a cache of length 0, as Optimum and transformers.js do. A step with a cache is given states as
    well, which it must not read: random ones, as many as are cached.

    Attributes:
        first, further: make those of the two graphs.
    """

    first: DecoderSteps
    further: DecoderSteps
    notes: tuple[str, ...] = ()
    preprocessing: Preprocessing = field(default_factory=Preprocessing)

    @property
    def inputs(self) -> dict[str, tuple[Dim, ...]]:
        states = self.first.names.states
        cache = {
            name: tuple(PAST_STATES if dim == states else dim for dim in spread.dims)
            for name, spread in self.further.floats.items()
        }
        return {**self.first.inputs, **cache, USE_CACHE: (1,)}

    @property
    def axes(self) -> dict[str, AxisRange]:
        axes = {**self.first.axes, **self.further.axes}
        states = axes[self.first.names.states]
        empty = {PAST: axes[PAST].model_copy(update={"min": 0}), PAST_STATES: AxisRange(min=0, max=states.max)}
        return {**axes, **empty}

    @property
    def example(self) -> dict[str, int]:
        example = {**self.first.example, **self.further.example}
        return {**example, PAST_STATES: example[self.first.names.states]}

    @property
    def mask(self) -> str | None:
        return self.first.mask

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        return self.first.vocabularies

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        """A first step where nothing is past, else one with a cache, of as many states as there are."""
        return self._whole((self.further if sizes[PAST] else self.first).sample(sizes, rng), rng)

    def cases(self, suite: str) -> list[Case]:
        """The cases of both graphs, told apart by the first word of their names."""
        made = [
            replace(case, name=f"{word}.{case.name}")
            for word, steps in (("first", self.first), ("next", self.further))
            for case in steps.cases(suite)
        ]
        return [replace(case, inputs=self._whole(case.inputs, seeded(case.name))) for case in made]

    def left_out(self, suite: str) -> dict[str, str]:
        """See `inputs.left_out`, of both graphs."""
        halves = (("first", self.first), ("next", self.further))
        return {f"{word}.{name}": why for word, steps in halves for name, why in steps.left_out(suite).items()}

    def _whole(self, given: Mapping[str, np.ndarray], rng: np.random.Generator) -> Arrays:
        cached = STATES not in given
        length = next((array.shape[2] for name, array in given.items() if ".encoder." in name), 0)
        sizes = {self.first.names.batch: len(given[IDS]), self.first.names.states: length, PAST: 0}
        lacking = {STATES: self.first.floats[STATES]} if cached else self.further.floats
        added = {}
        for name, spread in lacking.items():
            shape = tuple(dim if isinstance(dim, int) else sizes[dim] for dim in spread.dims)
            added[name] = (rng.standard_normal(shape) * spread.scale).astype(spread.dtype)
        whole = {**given, **added, USE_CACHE: np.array([cached])}
        return {name: whole[name] for name in self.inputs}
