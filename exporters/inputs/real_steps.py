"""Steps that an encoder-decoder model comes to itself: the encoder run on its own cases, the decoder on a prefix."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from onnxport.exporters.components.encoder_decoder_modules import (
    HIDDEN,
    IDS,
    LOGITS,
    STATES,
    STATES_MASK,
    Encoder,
    FirstStep,
    run,
)
from onnxport.exporters.exportable import Arrays, to_tensors
from onnxport.exporters.inputs import InputMaker, call_options
from onnxport.exporters.inputs.decoder_steps import NEW, PAST
from onnxport.exporters.inputs.seed import seeded
from onnxport.exporters.inputs.token_ids import draw_ids
from onnxport.verify.cases import Case

# What the caches of one case may take: those of Whisper's 1500 states are 490 MB a row, in and out.
_CASE_BYTES = 48 * 2**20
_PREFIX = 3
"""Tokens before a step with a cache: the start token and two more."""


@dataclass(frozen=True)
class RealSteps:
    """Runs a model to the steps of its decoder.

    Attributes:
        model: in eval mode.
        maker: of the encoder's inputs.
        start_token_id: what the decoder begins with; `pad_token_id` is not drawn among the tokens that follow.
        has_mask: whether the decoder reads the mask.
        stride: positions of the mask for each state.
        states: how many states there must be, where their number is fixed; None: as many as the encoder gives.
        one_batch: whether the number of rows is fixed.
        position_bytes: what one state of one row takes in the caches of all layers.
        static: fixed numbers of the new tokens of a first step, and of the past ones of a further step.
    """

    model: nn.Module
    maker: InputMaker
    vocab_size: int
    start_token_id: int
    pad_token_id: int
    has_mask: bool
    stride: int
    states: int | None
    one_batch: bool
    position_bytes: int
    static: Mapping[str, int]

    def first(self, suite: str) -> dict[str, Arrays]:
        """Inputs of first steps: the start token, and in every other case more."""
        steps = {}
        for number, (name, encoded) in enumerate(self._encoded(suite).items()):
            steps[name] = {
                IDS: self._ids(name, len(encoded[STATES]), self.static.get(NEW, 1 + number % 2 * 3)),
                **encoded,
            }
        return steps

    def next(self, suite: str) -> dict[str, Arrays]:
        """Inputs of steps with the cache that the decoder left after a prefix."""
        steps = {}
        for name, encoded in self._encoded(suite).items():
            past = self.static.get(PAST, _PREFIX)
            ids = self._ids(name, len(encoded[STATES]), past + 1)
            left = run(FirstStep(self.model), to_tensors({IDS: ids[:, :past], **encoded}))
            cache = {
                "past_key_values" + output.removeprefix("present"): tensor.numpy()
                for output, tensor in left.items()
                if output != LOGITS
            }
            mask = {STATES_MASK: encoded[STATES_MASK]} if self.has_mask else {}
            steps[name] = {IDS: ids[:, past:], **mask, **cache}
        return steps

    def _ids(self, name: str, rows: int, length: int) -> np.ndarray:
        rng = seeded(name)
        ids = draw_ids((rows, length), self.vocab_size, {self.pad_token_id}, rng)
        ids[:, 0] = self.start_token_id
        return ids

    def left_out(self, suite: str) -> dict[str, str]:
        """The cases of the encoder that make fewer states than the graph takes, where it takes a fixed number."""
        if self.states is None:
            return {}
        return {
            f"real.{case.name}": f"the encoder makes {states.shape[1]} states of it, and the graph takes {self.states}"
            for case, states in self._states(suite)
            if states.shape[1] < self.states
        }

    def _states(self, suite: str) -> Iterator[tuple[Case, np.ndarray]]:
        """Yields what the encoder makes of its cases. One that it refuses is reported with the encoder."""
        for case in _telling(self.maker.cases(suite), suite):
            try:
                inputs = {**to_tensors(case.inputs), **call_options(self.maker)}
                states = run(Encoder(self.model), inputs)[HIDDEN].numpy()
            except (RuntimeError, ValueError, IndexError):
                continue
            yield case, states

    def _encoded(self, suite: str) -> dict[str, Arrays]:
        """States and mask by name of the case."""
        encoded = {}
        for case, states in self._states(suite):
            mask = case.inputs[self.maker.mask] if self.has_mask and self.maker.mask is not None else None
            rows, length = self._room(*states.shape[:2])
            if self.states not in (None, length):
                continue
            made = {} if mask is None else {STATES_MASK: _with_real(mask[:rows, : length * self.stride])}
            encoded[f"real.{case.name}"] = {**made, STATES: states[:rows, :length]}
        return encoded

    def _room(self, rows: int, length: int) -> tuple[int, int]:
        """As many rows as fit, or as many positions of one: no layer knows where in the text a state stands."""
        length = min(length, self.states or length)
        if not self.one_batch:
            rows = max(min(rows, _CASE_BYTES // (self.position_bytes * length)), 1)
        if self.states is None:
            length = max(min(length, _CASE_BYTES // (self.position_bytes * rows)), 1)
        return rows, length


def _with_real(mask: np.ndarray) -> np.ndarray:
    """Returns the mask with the first position of every row in which nothing else is real: such a row has no result."""
    mask = mask.copy()
    mask[~mask.any(axis=1), 0] = 1
    return mask


def _telling(cases: Sequence[Case], suite: str) -> list[Case]:
    """All cases with padding and one of each other kind; of suite quick, one of each kind.

    Random ones mean nothing, and are taken where there are no others.
    """
    kinds: dict[str, list[Case]] = {}
    for case in cases:
        word = re.match(r"[^\W\d_]+", case.name)
        kinds.setdefault(word.group() if word else "", []).append(case)
    if len(kinds) > 1:
        kinds.pop("random", None)
    return [
        case
        for kind, members in kinds.items()
        for case in (members if kind == "padding" and suite != "quick" else members[:1])
    ]
