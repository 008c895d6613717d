"""Inputs for a model that looks at images: samples of any size, and the verification cases made from them.

The graph takes images of one height and width, those of the image processor, unless the recipe gives these axes names:
a position table, a window or an anchor of one size is easily baked into a graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxport.exporters.axes import axis_range
from onnxport.exporters.errors import SignatureError
from onnxport.exporters.exportable import Arrays
from onnxport.exporters.inputs.image_geometry import BATCH, CHANNELS, HEIGHT, PIXELS, WIDTH, Geometry, find_geometry
from onnxport.exporters.inputs.picture_processor import PictureProcessor
from onnxport.exporters.inputs.pictures import PICTURES
from onnxport.exporters.inputs.seed import seeded
from onnxport.exporters.manifest import ImagePreprocessing, Preprocessing
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, Dim, Vocabulary

if TYPE_CHECKING:
    from onnxport.exporters.checkpoint import Checkpoint

MASK = "pixel_mask"
MASKED_PATCHES = "bool_masked_pos"
KNOWN_INPUTS = (PIXELS, MASK, MASKED_PATCHES)
"""Inputs this module can make."""

# A single case should not need more pixel values than eight images of 384 x 384.
_PIXEL_VALUES = 8 * 3 * 384 * 384
_EXAMPLE_BATCH = 2
# The share of patches that SimMIM masks.
_MASKED = 0.6
_IN_SUITES = {
    "quick": ("gradient", "noise"),
    "standard": ("gradient", "noise", "black", "white", "colour", "wide", "tall"),
    "full": tuple(PICTURES),
}


@dataclass(frozen=True)
class ImageInputs:
    """Makes image inputs.

    Attributes:
        names: the inputs of the graph, in order.
        dims: names of the batch, height and width axes, or their fixed sizes, and the number of channels.
        static: fixed size of named axes.
        height, width: of the images of most cases, in pixels.
        step: what heights and widths are multiples of in samples of other sizes.
        low, high: the values a processed pixel takes: float32 [channels].
        dtype: of pixel_values: "float32".
        patches: number of patches in an image, for bool_masked_pos.
        pictures: transformers' image processor at work; None: the checkpoint has none.
        options: keyword arguments of forward besides the inputs.
        notes: things a person should know, one line each.
        described: how a consumer makes pixel_values.
    """

    names: tuple[str, ...]
    dims: Mapping[str, Dim]
    static: Mapping[str, int]
    height: int
    width: int
    step: int
    low: np.ndarray
    high: np.ndarray
    dtype: str = "float32"
    patches: int = 0
    pictures: PictureProcessor | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    described: ImagePreprocessing | None = field(default=None, compare=False)

    @property
    def inputs(self) -> dict[str, tuple[Dim, ...]]:
        batch, channels, height, width = (self.dims[name] for name in (BATCH, CHANNELS, HEIGHT, WIDTH))
        known: dict[str, tuple[Dim, ...]] = {
            PIXELS: (batch, channels, height, width),
            MASK: (batch, height, width),
            MASKED_PATCHES: (batch, self.patches),
        }
        return {name: known[name] for name in self.names}

    @property
    def axes(self) -> dict[str, AxisRange]:
        named = [dim for dim in self.dims.values() if isinstance(dim, str)]
        return {axis: axis_range(axis, self.static) for axis in named}

    @property
    def example(self) -> dict[str, int]:
        # All different and at least 2, so that no axis is mistaken for another or for a constant.
        sizes = {BATCH: _EXAMPLE_BATCH, HEIGHT: self.height, WIDTH: self.width}
        if self._any_size and self.height == self.width:
            sizes[WIDTH] += self.step
        return self._named(sizes)

    @property
    def mask(self) -> str | None:
        """Masked pixels are no positions of an output: nothing of it is padding."""
        return None

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        return {}

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing(image=self.described)

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        """Random pixels in the range of the processor, none masked; some patches masked, if patches can be."""
        shapes = {
            name: tuple(sizes[dim] if isinstance(dim, str) else dim for dim in dims)
            for name, dims in self.inputs.items()
        }
        low, high = (ends[:, None, None] for ends in (self.low, self.high))
        made: Arrays = {}
        for name, shape in shapes.items():
            if name == PIXELS:
                made[name] = (low + (high - low) * rng.random(shape, dtype=np.float32)).astype(self.dtype)
            elif name == MASK:
                made[name] = np.ones(shape, dtype=np.int64)
            else:
                made[name] = rng.random(shape) < _MASKED
        return made

    def cases(self, suite: str) -> list[Case]:
        """The cases of a suite, none of them at the traced size, smallest idea first.

        A case is the same in every suite that has it: its name is the seed.
        """
        cases = [*self._random(suite), *self._of_pictures(suite)]
        if suite != "quick":
            cases += [*self._odd_values(), *self._padded()]
        return list({case.name: case for case in reversed(cases)}.values())[::-1]

    @property
    def _any_size(self) -> bool:
        return all(isinstance(self.dims[name], str) for name in (HEIGHT, WIDTH))

    def _named(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes of batch, height and width under the names of the axes, where they have names."""
        return {
            dim: self.static.get(dim, sizes[name])
            for name, dim in self.dims.items()
            if isinstance(dim, str) and name in sizes
        }

    def _sizes(self, batch: int, height: int | None = None, width: int | None = None) -> dict[str, int]:
        return self._named({BATCH: batch, HEIGHT: height or self.height, WIDTH: width or self.width})

    def _random(self, suite: str) -> list[Case]:
        one_image = len(self.low) * self.height * self.width
        batches = {"quick": (1, 3), "standard": (1, 3, 4), "full": (1, 3, 4, 8)}[suite]
        asked = [self._sizes(batch) for batch in batches if batch <= 3 or batch * one_image <= _PIXEL_VALUES]
        if any(isinstance(self.dims[name], str) for name in (HEIGHT, WIDTH)):
            height, width, step = self.height, self.width, self.step
            asked += [self._sizes(1, height + step, width + 2 * step), self._sizes(3, height + 2 * step, width)]
            if suite != "quick":
                asked += [self._sizes(1, height + 1, width + 3), self._sizes(1, 2 * height, width + step)]
        cases = []
        for sizes in asked:
            shape = [sizes[dim] if isinstance(dim, str) else dim for dim in self.inputs[PIXELS]]
            name = f"random.{'x'.join(map(str, shape))}"
            cases.append(Case(name, self.sample(sizes, seeded(name))))
        return cases

    def left_out(self, suite: str) -> dict[str, str]:
        """The pictures of a suite of which the processor makes no images of the size of the graph, with the reason."""
        told = f"the image processor makes no {self.height}x{self.width} pixels of it"
        return {name: told for name, made in self._processed(suite).items() if made is None}

    def _processed(self, suite: str) -> dict[str, Arrays | None]:
        """What the processor makes of real images, by name of the case; None: another size."""
        if self.pictures is None:
            return {}
        every = [name for name in PICTURES if name not in ("wide", "tall")]
        batch = self.static.get(str(self.dims[BATCH]))
        wanted = [(f"image.{name}", [name] * (batch or 1)) for name in _IN_SUITES[suite]]
        if suite == "full":
            wanted.append(("image.batch", [every[i % len(every)] for i in range(batch or len(every))]))
        size, exactly = (self.height, self.width), not self._any_size
        return {name: self.pictures.at_size(kinds, size, exactly=exactly) for name, kinds in wanted}

    def _of_pictures(self, suite: str) -> list[Case]:
        cases = []
        for name, made in self._processed(suite).items():
            if made is not None:
                rows, _, height, width = made[PIXELS].shape
                inputs = self.sample(self._sizes(rows, height, width), seeded(name))
                inputs |= {key: made[key].astype(array.dtype) for key, array in inputs.items() if key in made}
                cases.append(Case(name, inputs))
        return cases

    def _odd_values(self) -> list[Case]:
        """Zeros, the lowest values, and both ends of the range side by side."""
        inputs = {
            name: self.sample(self._sizes(1), seeded(name))
            for name in ("pixels.zeros", "pixels.negative", "pixels.bounds")
        }
        inputs["pixels.zeros"][PIXELS][...] = 0
        pixels = inputs["pixels.negative"][PIXELS]
        pixels[...] = -np.abs(pixels)
        low, high = (ends[:, None, None] for ends in (self.low, self.high))
        pixels = inputs["pixels.bounds"][PIXELS]
        pixels[...] = np.where(np.indices(pixels.shape[2:]).sum(axis=0) % 2, high, low)
        return [Case(name, arrays) for name, arrays in inputs.items()]

    def _padded(self) -> list[Case]:
        """Images that fill a part of their row, as a processor pads them: below, and to the right of the last one."""
        if MASK not in self.names:
            return []
        inputs = self.sample(self._sizes(3), seeded("padding.mixed"))
        mask = inputs[MASK]
        mask[0, mask.shape[1] * 2 // 3 :, :] = 0
        mask[-1, :, mask.shape[2] // 2 :] = 0
        inputs[PIXELS] *= mask[:, None].astype(self.dtype)
        return [Case("padding.mixed", inputs)]


def image_inputs(checkpoint: Checkpoint) -> ImageInputs:
    """What the image processor emits and forward takes; without a processor, images of the config's size.

    Raises:
        SignatureError: the model needs an input that cannot be made, or nothing tells the size of its images.
        RecipeError: axes that do not fit.
        SourceError: the image processor fails, or belongs to another model.
    """
    model, config = checkpoint.model, vision_config(checkpoint.config)
    loaded = checkpoint.processors.image_processor
    pictures = None if loaded is None else PictureProcessor(loaded, picture_side(config))
    emitted = {PIXELS} if pictures is None else set(pictures.emitted)
    if checkpoint.task.name == "masked-im":
        emitted.add(MASKED_PATCHES)
    accepted = inspect.signature(model.forward).parameters
    names = tuple(name for name in accepted if name in emitted)
    unknown = [name for name in names if name not in KNOWN_INPUTS]
    if PIXELS not in names or unknown:
        raise SignatureError(
            f"{type(model).__name__} takes {', '.join(accepted)} and the image processor emits "
            f"{', '.join(sorted(emitted))}; onnxport can make {', '.join(KNOWN_INPUTS)}"
        )
    geometry = find_geometry(model, config, pictures, checkpoint.recipe, names)
    low, high = pictures.range if pictures is not None else _unit_range(geometry)
    return ImageInputs(
        names=names,
        dims=geometry.dims,
        static=geometry.static,
        height=geometry.height,
        width=geometry.width,
        step=geometry.step,
        low=low,
        high=high,
        dtype=str(checkpoint.dtype).removeprefix("torch."),
        patches=geometry.patches,
        pictures=pictures,
        options=geometry.options,
        notes=geometry.notes,
        described=pictures.described() if pictures is not None else None,
    )


def vision_config(config: Any) -> Any:
    """What describes the part that looks at images: the whole config, or its part in a model that reads text too."""
    return getattr(config, "vision_config", None) or config


def picture_side(config: Any) -> int:
    """The shorter side in pixels of the pictures that a processor is given: more than it keeps, if it resizes."""
    told = getattr(config, "image_size", None)
    return max(told) if isinstance(told, (list, tuple)) else told if isinstance(told, int) else 224


def _unit_range(geometry: Geometry) -> tuple[np.ndarray, np.ndarray]:
    channels = int(geometry.dims[CHANNELS])
    return np.full(channels, -1, dtype=np.float32), np.full(channels, 1, dtype=np.float32)
