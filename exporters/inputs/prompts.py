"""Inputs that say what in an image is meant: points inside an object, and points beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxport.exporters.axes import axis_range, named_axes
from onnxport.exporters.errors import SignatureError
from onnxport.exporters.exportable import Arrays
from onnxport.exporters.inputs.seed import seeded
from onnxport.exporters.manifest import Preprocessing
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, Dim, Vocabulary

if TYPE_CHECKING:
    from onnxport.exporters.checkpoint import Checkpoint

POINTS = "input_points"
LABELS = "input_labels"
EMBEDDINGS = ("image_embeddings", "image_positional_embeddings")
INSIDE, BESIDE, NO_POINT, PADDING = 1, 0, -1, -10
"""What a label says of its point, as transformers' processor writes it."""

_AXES = ("batch", "point_batch", "points")
_EXAMPLE = {"batch": 2, "point_batch": 3, "points": 4}
_SIZES = {
    "quick": ((1, 1, 1), (3, 2, 5)),
    "standard": ((1, 1, 1), (3, 2, 5), (1, 6, 2)),
    "full": ((1, 1, 1), (3, 2, 5), (1, 6, 2), (2, 1, 9)),
}


@dataclass(frozen=True)
class PromptInputs:
    """Makes `input_points`: float [batch, point_batch, points, 2], x and y in pixels of the processed image, and
    `input_labels`: int64 [batch, point_batch, points]. Each entry of point_batch asks for masks of its own.

    Attributes:
        shapes: name of an input to its axes, in the order of the graph.
        names: the axes as this module knows them to their names in the graph, or their fixed sizes.
        static: fixed size of named axes.
        image_size: in pixels; points are inside it.
        dtype: numpy's name of the dtype of points and embeddings.
    """

    shapes: Mapping[str, tuple[Dim, ...]]
    names: Mapping[str, Dim]
    static: Mapping[str, int]
    image_size: int
    dtype: str

    @property
    def inputs(self) -> dict[str, tuple[Dim, ...]]:
        return dict(self.shapes)

    @property
    def axes(self) -> dict[str, AxisRange]:
        named = [axis for axis in self.names.values() if isinstance(axis, str)]
        return {axis: axis_range(axis, self.static) for axis in named}

    @property
    def example(self) -> dict[str, int]:
        return self._sizes(tuple(_EXAMPLE.values()))

    @property
    def mask(self) -> str | None:
        """A padded point is no position of an output."""
        return None

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing()

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        return {}

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        """Points anywhere in the image, inside and beside; embeddings drawn from N(0, 1)."""
        made: Arrays = {}
        for name, dims in self.shapes.items():
            shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in dims)
            if name == POINTS:
                made[name] = (rng.random(shape) * self.image_size).astype(self.dtype)
            elif name == LABELS:
                made[name] = rng.integers(0, 2, shape, dtype=np.int64)
            else:
                made[name] = rng.normal(size=shape).astype(self.dtype)
        return made

    def cases(self, suite: str) -> list[Case]:
        """Points at several sizes; each kind of label alone, padding as a processor makes it, corners of the image."""
        cases = {}
        for asked in _SIZES[suite]:
            sizes = self._sizes(asked)
            name = f"points.{'x'.join(map(str, self.sample(sizes, seeded('shape'))[LABELS].shape))}"
            cases[name] = self.sample(sizes, seeded(name))
        if suite != "quick":
            for name, label in {"labels.inside": INSIDE, "labels.beside": BESIDE, "labels.none": NO_POINT}.items():
                cases[name] = self.sample(self._sizes((1, 2, 3)), seeded(name))
                cases[name][LABELS][...] = label
            padded = self.sample(self._sizes((3, 2, 5)), seeded("labels.padded"))
            where = np.broadcast_to(np.arange(padded[LABELS].shape[-1]) >= 2, padded[LABELS].shape).copy()
            where[0] = False
            padded[LABELS][where] = PADDING
            padded[POINTS][where] = PADDING
            corners = self.sample(self._sizes((1, 1, 4)), seeded("points.corners"))
            ends = np.array([[0, 0], [0, 1], [1, 0], [1, 1]]) * self.image_size
            corners[POINTS][...] = ends[np.arange(corners[POINTS].shape[-2]) % 4]
            cases |= {"labels.padded": padded, "points.corners": corners}
        return [Case(name, inputs) for name, inputs in cases.items()]

    def _sizes(self, asked: tuple[int, ...]) -> dict[str, int]:
        named = zip(self.names.values(), asked, strict=True)
        return {axis: self.static.get(axis, size) for axis, size in named if isinstance(axis, str)}


def prompt_inputs(checkpoint: Checkpoint, embeddings: tuple[int, ...] = ()) -> PromptInputs:
    """Points and their labels.

    Args:
        embeddings: channels, height and width of what an image became; where they are given, it is an input as well,
            with the encoding of its positions.

    Raises:
        SignatureError: the config does not tell the size of an image.
        RecipeError: axes that do not fit.
    """
    config = checkpoint.config
    size = getattr(getattr(config, "vision_config", config), "image_size", None)
    if not isinstance(size, int):
        raise SignatureError(
            f"{type(checkpoint.model).__name__} takes {POINTS} in pixels of the processed image, but its config has "
            f"the image_size {size}; expected a number"
        )
    batch, point_batch, points = _AXES
    known: dict[str, tuple[Dim, ...]] = {
        **({name: (batch, *embeddings) for name in EMBEDDINGS} if embeddings else {}),
        POINTS: (batch, point_batch, points, 2),
        LABELS: (batch, point_batch, points),
    }
    shapes, static = named_axes(known, checkpoint.recipe)
    return PromptInputs(
        shapes=shapes,
        names=dict(zip(_AXES, shapes[LABELS], strict=True)),
        static=static,
        image_size=size,
        dtype=str(checkpoint.dtype).removeprefix("torch."),
    )
