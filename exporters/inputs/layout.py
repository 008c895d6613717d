"""Inputs for a model that reads the text of a page: tokens, and where on the page each of them stands."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxport.exporters.errors import SignatureError
from onnxport.exporters.exportable import Arrays
from onnxport.exporters.inputs.seed import seeded
from onnxport.exporters.inputs.text import TextInputs, text_inputs
from onnxport.exporters.manifest import Preprocessing
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, Dim, Vocabulary

if TYPE_CHECKING:
    from onnxport.exporters.checkpoint import Checkpoint

BOX = "bbox"
_PAGE = 1000
"""Coordinates are thousandths of the page."""
_LINE, _WORD = 40, 90
"""Height of a line and width of a token of made pages, in thousandths."""


@dataclass(frozen=True)
class LayoutInputs:
    """Makes token inputs with `bbox`: int64 [batch, sequence, 4], left, top, right and bottom of each token.

    Attributes:
        text: makes the tokens.
        order: names of all inputs, as in forward.
        page: the highest coordinate.
    """

    text: TextInputs
    order: tuple[str, ...]
    page: int

    @property
    def inputs(self) -> dict[str, tuple[Dim, ...]]:
        known: dict[str, tuple[Dim, ...]] = {**self.text.inputs, BOX: (*self.text.token_axes, 4)}
        return {name: known[name] for name in self.order}

    @property
    def axes(self) -> dict[str, AxisRange]:
        return self.text.axes

    @property
    def example(self) -> dict[str, int]:
        return self.text.example

    @property
    def mask(self) -> str | None:
        return self.text.mask

    @property
    def preprocessing(self) -> Preprocessing:
        return self.text.preprocessing

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        """Of the token inputs: what a coordinate means to a model depends on the other three as well."""
        return self.text.vocabularies

    @property
    def notes(self) -> tuple[str, ...]:
        return self.text.notes

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        """Tokens as of a text, each at a place of its own."""
        return self._with_boxes(self.text.sample(sizes, rng), self._scattered(sizes, rng))

    def cases(self, suite: str) -> list[Case]:
        """The cases of the text, real text in lines and anything else scattered over the page; and boxes of odd sizes.

        Special tokens and padding have the box of a processor: all zeros.
        """
        cases = []
        for case in self.text.cases(suite):
            shape = case.inputs["input_ids"].shape
            sizes = dict(zip(self.text.token_axes, shape, strict=True))
            real = case.name.startswith("text")
            boxes = self._in_lines(shape) if real else self._scattered(sizes, seeded(f"boxes {case.name}"))
            if case.mask is not None:
                boxes[case.inputs[case.mask] == 0] = 0
            cases.append(Case(case.name, self._with_boxes(dict(case.inputs), boxes), case.mask))
        return [*cases, *(self._odd_boxes() if suite != "quick" else [])]

    def left_out(self, suite: str) -> dict[str, str]:
        """See `inputs.left_out`, of the text."""
        return self.text.left_out(suite)

    def _odd_boxes(self) -> list[Case]:
        """The whole page for every token, and boxes without an area in two corners of it."""
        axes = self.text.token_axes
        sizes = {axis: self.axes[axis].fixed or size for axis, size in zip(axes, (2, 7), strict=False)}
        cases = []
        for name, corners in {"boxes.page": [(0, 1)], "boxes.corners": [(0, 0), (1, 1)]}.items():
            tokens = self.text.sample(sizes, seeded(name))
            shape = tokens["input_ids"].shape
            kinds = np.array([[start * self.page] * 2 + [end * self.page] * 2 for start, end in corners])
            boxes = np.broadcast_to(kinds[np.arange(shape[-1]) % len(kinds)], (*shape, 4)).astype(np.int64)
            cases.append(Case(name, self._with_boxes(tokens, boxes), self.mask))
        return cases

    def _with_boxes(self, tokens: Arrays, boxes: np.ndarray) -> Arrays:
        known = {**tokens, BOX: boxes}
        return {name: known[name] for name in self.order}

    def _scattered(self, sizes: Mapping[str, int], rng: np.random.Generator) -> np.ndarray:
        shape = tuple(sizes[axis] for axis in self.text.token_axes)
        corners = np.sort(rng.integers(0, self.page + 1, (*shape, 2, 2)), axis=-2)  # [..., (first, second), (x, y)]
        return corners.reshape(*shape, 4).astype(np.int64)

    def _in_lines(self, shape: Sequence[int]) -> np.ndarray:
        """Reading order: from left to right, line by line, from the top of the page again where it is full."""
        position = np.arange(shape[-1]) - 1
        each = self.page // _WORD
        left = (position % each) * _WORD
        top = (position // each) % (self.page // _LINE) * _LINE
        boxes = np.stack([left, top, left + _WORD - 10, top + _LINE - 10], axis=-1)
        boxes[[0, -1]] = 0
        return np.broadcast_to(boxes, (*shape, 4)).astype(np.int64)


def layout_inputs(checkpoint: Checkpoint) -> LayoutInputs:
    """The tokens, and `bbox` for each of them.

    Raises:
        SignatureError: the model has no table of coordinates, or needs an input that cannot be made.
        RecipeError, SourceError: as `text_inputs`.
    """
    text = text_inputs(checkpoint)
    table = getattr(checkpoint.config, "max_2d_position_embeddings", None)
    if not isinstance(table, int) or table < 2:
        raise SignatureError(
            f"{type(checkpoint.model).__name__} takes {BOX}, but its config has max_2d_position_embeddings {table}; "
            "expected the number of coordinates it knows"
        )
    accepted = inspect.signature(checkpoint.model.forward).parameters
    order = tuple(name for name in accepted if name in text.names or name == BOX)
    return LayoutInputs(text, order, page=min(_PAGE, table - 1))
