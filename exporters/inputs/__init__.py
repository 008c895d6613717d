"""What a model is fed with. One literal table from an input of forward to what makes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onnxport.exporters.errors import SignatureError
from onnxport.verify.import_target import import_target

if TYPE_CHECKING:
    from onnxport.exporters.checkpoint import Checkpoint
    from onnxport.exporters.exportable import Arrays
    from onnxport.exporters.manifest import Preprocessing
    from onnxport.verify.cases import Case
    from onnxport.verify.contract import AxisRange, Dim, Vocabulary


class InputMaker(Protocol):
    """Makes the inputs of one component; the properties are those of `Exportable`."""

    @property
    def inputs(self) -> Mapping[str, tuple[Dim, ...]]: ...
    @property
    def axes(self) -> Mapping[str, AxisRange]: ...
    @property
    def example(self) -> Mapping[str, int]: ...
    @property
    def mask(self) -> str | None: ...
    @property
    def vocabularies(self) -> Mapping[str, Vocabulary]: ...
    @property
    def preprocessing(self) -> Preprocessing: ...
    @property
    def notes(self) -> tuple[str, ...]: ...

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        """Makes valid inputs at the given size of each axis."""
        ...

    def cases(self, suite: str) -> list[Case]:
        """The cases of a suite, none of them at the traced sizes. A case's name is its seed."""
        ...


_HERE = "onnxport.exporters.inputs"
MAKERS: Mapping[str, str] = {
    "input_ids": f"{_HERE}.text:text_inputs",
    "pixel_values": f"{_HERE}.image:image_inputs",
    "input_values": f"{_HERE}.audio:audio_inputs",
    "input_features": f"{_HERE}.audio:audio_inputs",
    "past_values": f"{_HERE}.time_series:time_series_inputs",
    "bbox": f"{_HERE}.layout:layout_inputs",
    "input_points": f"{_HERE}.prompts:prompt_inputs",
}
"""An input of forward, and the function that makes a maker of it and of what belongs to it from a checkpoint."""
_COVERED = {"bbox": "input_ids"}
"""An input whose maker makes this one as well."""


def make_inputs(checkpoint: Checkpoint) -> InputMaker:
    """Returns what feeds the checkpoint's model, from its forward signature and processors.

    Raises:
        SignatureError: forward takes nothing that can be made.
        RecipeError, SourceError: as the makers.
    """
    accepted = inspect.signature(checkpoint.model.forward).parameters
    makers = makers_of(accepted)
    if not makers:
        raise SignatureError(
            f"{type(checkpoint.model).__name__} takes {', '.join(accepted)}; onnxport can make {', '.join(MAKERS)}"
        )
    if len(makers) == 1:
        return next(iter(makers.values()))(checkpoint)
    from onnxport.exporters.inputs.combined import combine

    return combine(checkpoint, makers, list(accepted))


def makers_of(accepted: Iterable[str]) -> dict[str, Callable[[Checkpoint], InputMaker]]:
    """Returns what makes inputs of these names, by kind: "text", "image" ..."""
    names = set(accepted)
    names -= {covered for name, covered in _COVERED.items() if name in names}
    targets = dict.fromkeys(target for name, target in MAKERS.items() if name in names)
    return {target.rpartition(":")[2].removesuffix("_inputs"): import_target(target) for target in targets}


def call_options(maker: InputMaker) -> Mapping[str, Any]:
    """Returns what forward must be told besides its inputs, where a maker has `options`: most need none."""
    options: Mapping[str, Any] = getattr(maker, "options", {})
    return options


def left_out(maker: InputMaker, suite: str) -> Mapping[str, str]:
    """Returns the real inputs of a suite for which a maker has no case, by name, with the reason."""
    told: Callable[[str], Mapping[str, str]] = getattr(maker, "left_out", lambda suite: {})
    return told(suite)
