"""How a model is divided into graphs. One literal table; a row's module loads when it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from onnxport.exporters.errors import RecipeError
from onnxport.verify.import_target import import_target

if TYPE_CHECKING:
    from onnxport.exporters.checkpoint import Checkpoint
    from onnxport.exporters.exportable import Exportable

_HERE = "onnxport.exporters.components"
SPLITS: Mapping[str, str] = {
    "single": f"{_HERE}.single:components",
    "decoder": f"{_HERE}.decoder:components",
    "encoder_decoder": f"{_HERE}.encoder_decoder:components",
    "towers": f"{_HERE}.towers:components",
    "prompted": f"{_HERE}.prompted:components",
}
"""What a task's head asks for, or `--split`, and the function that makes its components."""

ON_REQUEST: Mapping[str, Literal["split", "merged"]] = {
    "text_model": "split",
    "vision_model": "split",
    "vision_encoder": "split",
    "prompt_encoder_mask_decoder": "split",
    "decoder_model_merged": "merged",
}
"""A component that a model has only where the recipe asks for it, and the field of the recipe that does."""


def split(checkpoint: Checkpoint) -> dict[str, Exportable]:
    """Returns the components of a checkpoint by name, in the order in which they run.

    Raises:
        SignatureError: the model needs an input that cannot be made.
        RecipeError: an axis or output that the model has not; `split` for a model that is one tower; `merged` for one
            without an encoder and a decoder.
        SourceError: weights that the task needs are missing, or a processor does not fit the model.
    """
    name = _apart(checkpoint) if checkpoint.recipe.split else checkpoint.head.split
    if name is None:
        raise RecipeError(
            f"split (--split) makes a component of each tower of a dual encoder, and of the two halves of a model that "
            f"is prompted with points; {checkpoint.source.architecture} is neither: leave it out"
        )
    if checkpoint.recipe.merged and name != "encoder_decoder":
        raise not_merged(checkpoint.source.architecture)
    make: Callable[[Checkpoint], dict[str, Exportable]] = import_target(SPLITS[name])
    return make(checkpoint)


def not_merged(architecture: str) -> RecipeError:
    """What `merged` is answered with for a model that is not an encoder and a decoder."""
    return RecipeError(
        "merged (--merged) puts the decoder of an encoder-decoder model into one graph, with and without a cache; "
        f"{architecture} is not exported as encoder and decoder: leave it out"
    )


def requesting(checkpoint: Checkpoint, component: str) -> Checkpoint:
    """Returns the checkpoint with a recipe that asks for a component of that name, where its model can have one."""
    field = ON_REQUEST.get(component)
    merges = field == "merged" and checkpoint.head.split == "encoder_decoder"
    splits = field == "split" and _apart(checkpoint) is not None
    asked = {"merged": True} if merges else {"split": True} if splits else {}
    return replace(checkpoint, recipe=checkpoint.recipe.model_copy(update=asked))


def _apart(checkpoint: Checkpoint) -> str | None:
    """The row for a model of which `--split` makes several graphs; what the model can do tells. None: it makes none."""
    from onnxport.exporters.components.prompted import is_prompted
    from onnxport.exporters.components.towers import is_dual_encoder

    rows = {"towers": is_dual_encoder, "prompted": is_prompted}
    return next((name for name, fits in rows.items() if fits(checkpoint.model)), None)
