"""Inputs for the decoder of an encoder-decoder model: tokens, and what its encoder and its earlier steps leave.

Samples of any size are random, with the spread of what the model itself was seen to make. Cases are both: random at
sizes of all kinds, and real: the encoder is run on its own cases, and the decoder on a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from onnxport.exporters.axes import axis_range
from onnxport.exporters.components.encoder_decoder_modules import IDS, STATES_MASK
from onnxport.exporters.exportable import Arrays
from onnxport.exporters.inputs.seed import seeded
from onnxport.exporters.inputs.token_ids import draw_ids
from onnxport.exporters.manifest import Preprocessing
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, Dim, Vocabulary

NEW, PAST = "decoder_sequence", "past_decoder_sequence"
"""Axes of the tokens of a step, and of those before it."""

# Sizes at trace time: all different, at least 2, and none that text is traced at.
_EXAMPLE = {"batch": 2, NEW: 3, PAST: 5, "states": 7, "mask": 7}
# The same of a decoder that has no eight positions.
_SHORT_EXAMPLE = {**_EXAMPLE, "batch": 4, PAST: 2}


@dataclass(frozen=True)
class Axes:
    """What the axes are called in the graphs; `mask` is `states` unless the encoder shortens what it reads."""

    batch: str
    states: str
    mask: str


@dataclass(frozen=True)
class Spread:
    """Of a float input: its dimensions and dtype, and the standard deviation of what the model makes of it."""

    dims: tuple[Dim, ...]
    dtype: np.dtype
    scale: float


@dataclass(frozen=True)
class DecoderSteps:
    """Makes the inputs of `decoder_model` or `decoder_with_past_model`.

    Attributes:
        names: of the axes.
        has_mask: whether the decoder reads a mask of the encoder's positions.
        floats: every float input of the graph, in order: the states, or the cache.
        vocab_size: token ids are below it; `pad_token_id` is not drawn.
        longest: the most tokens a decoder takes, earlier ones among them; None: no bound known.
        stride: positions of the mask for each of the states; 1 where both have the same axis.
        static: axes with a fixed size.
        real: makes the inputs of steps that the model itself came to, by name of the case, for a suite.
        left_out: steps of a suite that the model cannot come to, by name of the case, with the reason.
    """

    names: Axes
    has_mask: bool
    floats: Mapping[str, Spread]
    vocab_size: int
    pad_token_id: int
    longest: int | None
    stride: int
    static: Mapping[str, int]
    real: Callable[[str], Mapping[str, Arrays]]
    left_out: Callable[[str], Mapping[str, str]] = lambda suite: {}
    notes: tuple[str, ...] = ()
    preprocessing: Preprocessing = field(default_factory=Preprocessing)

    @property
    def inputs(self) -> dict[str, tuple[Dim, ...]]:
        ids: dict[str, tuple[Dim, ...]] = {IDS: (self.names.batch, NEW)}
        mask: dict[str, tuple[Dim, ...]] = {STATES_MASK: (self.names.batch, self.names.mask)}
        return {**ids, **(mask if self.has_mask else {}), **{name: one.dims for name, one in self.floats.items()}}

    @property
    def axes(self) -> dict[str, AxisRange]:
        used = {dim for dims in self.inputs.values() for dim in dims if isinstance(dim, str)}
        order = (self.names.batch, PAST, NEW, self.names.states, self.names.mask)
        room = {NEW: self.longest, PAST: self.longest and self.longest - 1}
        return {
            axis: axis_range(axis, self.static, most=room.get(axis)) for axis in dict.fromkeys(order) if axis in used
        }

    @property
    def example(self) -> dict[str, int]:
        long = self.longest is None or self.longest >= _EXAMPLE[NEW] + _EXAMPLE[PAST]
        example = _EXAMPLE if long else _SHORT_EXAMPLE
        sizes = {self.names.mask: example["mask"] * self.stride, self.names.states: example["states"]}
        sizes |= {self.names.batch: example["batch"], NEW: example[NEW], PAST: example[PAST]}
        return {axis: self.static.get(axis, sizes[axis]) for axis in self.axes}

    @property
    def mask(self) -> str | None:
        return STATES_MASK if self.has_mask else None

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        return {IDS: Vocabulary(size=self.vocab_size, padding=self.pad_token_id)}

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        """Random ids (never the padding id), nothing masked, states or cache of the spread that was measured."""
        made: Arrays = {}
        for name, dims in self.inputs.items():
            shape = tuple(dim if isinstance(dim, int) else sizes[dim] for dim in dims)
            if name == IDS:
                made[name] = draw_ids(shape, self.vocab_size, {self.pad_token_id}, rng)
            elif name == STATES_MASK:
                made[name] = np.ones(shape, dtype=np.int64)
                made[name][:, sizes[self.names.states] * self.stride :] = 0  # no more than there are states of
            else:
                spread = self.floats[name]
                made[name] = (rng.standard_normal(shape) * spread.scale).astype(spread.dtype)
        return made

    def cases(self, suite: str) -> list[Case]:
        """The cases of a suite, none of them at the traced sizes: random ones, then real ones."""
        cases = []
        for batch, new, past, states in self._sizes(suite):
            known = {self.names.mask: states * self.stride, self.names.states: states, self.names.batch: batch}
            known |= {NEW: new, PAST: past}
            sizes = {axis: self.static.get(axis, known[axis]) for axis in self.axes}
            name = f"random.{'x'.join(str(size) for size in sizes.values())}"
            cases.append(self._case(name, self.sample(sizes, seeded(name))))
            if self.has_mask and sizes[self.names.states] > 1:
                cases += self._padded(sizes) if batch > 1 else []
        cases += [self._case(name, inputs) for name, inputs in self.real(suite).items()]
        return list({case.name: case for case in reversed(cases)}.values())[::-1]

    def _sizes(self, suite: str) -> list[tuple[int, int, int, int]]:
        """Batch, new tokens, past tokens and states. A step of generation has one new token."""
        sizes = [(1, 1, 1, 4), (3, 1, 9, 6), (2, 4, 2, 13)]
        if suite != "quick":
            sizes += [(4, 2, 31, 1), (1, 1, 60, 40)]
        if suite == "full":
            sizes += [(8, 1, 16, 24), (2, 17, 8, 64)]
        if self.longest is None:
            return sizes
        room = self.longest - 1  # one position is of an earlier token, at least
        return [(b, min(n, room), max(min(p, self.longest - n), 1), s) for b, n, p, s in sizes]

    def _padded(self, sizes: Mapping[str, int]) -> list[Case]:
        """Random states of which the rows have fewer and fewer real ones, on the right."""
        name = f"padding.random.{'x'.join(str(size) for size in sizes.values())}"
        inputs = self.sample(sizes, seeded(name))
        mask = inputs[STATES_MASK]
        for row in range(1, len(mask)):
            real = max(sizes[self.names.states] * (len(mask) - row) // len(mask), 1)
            mask[row, real * self.stride :] = 0
        return [self._case(name, inputs)]

    def _case(self, name: str, inputs: Arrays) -> Case:
        return Case(name, inputs, self.mask)
