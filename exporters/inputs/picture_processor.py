"""transformers' image processor of a checkpoint, at work on generated pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from onnxport.exporters.errors import SourceError
from onnxport.exporters.exportable import Arrays
from onnxport.exporters.first_line import first_line
from onnxport.exporters.inputs.pictures import PICTURES, Picture
from onnxport.exporters.manifest import ImagePreprocessing

PIXELS = "pixel_values"


@dataclass(frozen=True)
class PictureProcessor:
    """An image processor, and the shorter side in pixels of the pictures that it is given."""

    processor: Any
    side: int

    def process(self, pictures: Sequence[Picture], **options: Any) -> Arrays:
        """Returns what the processor emits that is an array, by name: pixel_values [batch, channels, height, width] ...

        Raises:
            SourceError: the processor fails, or makes no pixel_values of that rank.
        """
        from PIL import Image

        images = [Image.fromarray(picture) for picture in pictures]
        if hasattr(self.processor, "apply_ocr"):  # what a processor reads in a picture is not among its pixels
            options["apply_ocr"] = False
        try:
            made = self.processor(images=images, return_tensors="np", **options)
            arrays = {str(name): np.asarray(value) for name, value in made.items()}
        except Exception as e:
            raise SourceError(
                f"the image processor {self.name} fails on a picture of {list(pictures[0].shape)} "
                f"({type(e).__name__}: {first_line(e)}); mend preprocessor_config.json, or remove it to take the size "
                "of the images from config.json"
            ) from e
        pixels = arrays.get(PIXELS)
        if pixels is None or pixels.ndim != 4 or pixels.dtype == object:
            seen = "no pixel_values" if pixels is None else f"pixel_values {pixels.dtype} {list(pixels.shape)}"
            raise SourceError(
                f"the image processor {self.name} makes {seen} of pictures; expected pixel_values "
                "[batch, channels, height, width]"
            )
        return arrays

    @property
    def name(self) -> str:
        return type(self.processor).__name__

    @cached_property
    def emitted(self) -> Mapping[str, np.ndarray]:
        """What it makes of a square picture."""
        return self.process([PICTURES["gradient"](self.side)])

    @cached_property
    def resizes(self) -> bool:
        """Whether the size of what it makes does not depend on the size of a square picture."""
        other = self.process([PICTURES["gradient"](self.side + 48)])
        return other[PIXELS].shape == self.emitted[PIXELS].shape

    @cached_property
    def range(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest value of each channel: float32 [channels].

        Raises:
            SourceError: the processor maps black and white to the same number, or to no number.
        """
        ends = [self.process([PICTURES[name](self.side)])[PIXELS] for name in ("black", "white")]
        both = np.concatenate(ends).astype(np.float32)
        low, high = both.min(axis=(0, 2, 3)), both.max(axis=(0, 2, 3))
        if not np.isfinite(both).all() or (low == high).any():
            raise SourceError(
                f"the image processor {self.name} maps black to {low.tolist()} and white to {high.tolist()}; expected "
                "two different numbers for each channel: mend image_mean, image_std and rescale_factor"
            )
        return low, high

    @cached_property
    def shapes_differ(self) -> bool:
        """Whether what it makes of a picture that is not square has another size."""
        wide = self._or_none([PICTURES["wide"](self._source_side)])
        return wide is not None and wide[PIXELS].shape != self.emitted[PIXELS].shape

    @property
    def _source_side(self) -> int:
        """Larger than what comes out, where that makes no difference: then it has to resize."""
        return self.side * 5 // 4 if self.resizes else self.side

    def at_size(self, kinds: Sequence[str], size: tuple[int, int], *, exactly: bool) -> Arrays | None:
        """Returns what the processor makes of pictures of these kinds, at (height, width) if `exactly`.

        Where its own size is another, the pictures are resized before it, and it does the rest. None: it makes another
        size all the same, or cannot batch them.
        """
        pictures = [PICTURES[kind](self._source_side) for kind in kinds]
        plain = self._or_none(pictures)
        if plain is not None and (not exactly or plain[PIXELS].shape[2:] == size):
            return plain
        from PIL import Image

        # A processor that pads makes that size of what is smaller.
        for target in (size, (self.side, self.side)):
            resized = [np.asarray(Image.fromarray(picture).resize(target[::-1])) for picture in pictures]
            made = self._or_none(resized, do_resize=False, do_center_crop=False)
            if made is not None and made[PIXELS].shape[2:] == size:
                return made
        return None

    def _or_none(self, pictures: Sequence[Picture], **options: Any) -> Arrays | None:
        """Pictures that a processor cannot batch are no fault of it."""
        try:
            return self.process(pictures, **options)
        except SourceError:
            return None

    def described(self) -> ImagePreprocessing:
        """What a consumer needs to make pixel_values without transformers, as far as the processor says it."""
        processor = self.processor

        def told(step: str, name: str) -> Any:
            return getattr(processor, name, None) if getattr(processor, step, False) else None

        _, channels, height, width = self.emitted[PIXELS].shape
        resample = told("do_resize", "resample")
        return ImagePreprocessing(
            channels=channels,
            height=height,
            width=width,
            channel_order="bgr" if getattr(processor, "do_flip_channel_order", False) else "rgb",
            size=_sizes(told("do_resize", "size")),
            crop_size=_sizes(told("do_center_crop", "crop_size")),
            resample=_resample_name(resample),
            rescale_factor=_number(told("do_rescale", "rescale_factor")),
            mean=_numbers(told("do_normalize", "image_mean")),
            std=_numbers(told("do_normalize", "image_std")),
        )


def _sizes(told: Any) -> dict[str, int] | None:
    if told is None:
        return None
    pairs = vars(told) if hasattr(told, "__dict__") and not isinstance(told, Mapping) else told
    if not isinstance(pairs, Mapping):
        return None
    return {str(name): int(value) for name, value in pairs.items() if isinstance(value, int)} or None


def _resample_name(told: Any) -> str | None:
    from PIL import Image

    return None if told is None else Image.Resampling(int(getattr(told, "value", told))).name.lower()


def _number(told: Any) -> float | None:
    return None if told is None else float(told)


def _numbers(told: Any) -> tuple[float, ...] | None:
    if told is None:
        return None
    return tuple(float(value) for value in (cast("Sequence[float]", told) if np.iterable(told) else (told,)))
