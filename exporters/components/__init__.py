"""How a model is divided into graphs. One literal table; a row's module loads when it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

from onnxport.exporters.errors import RecipeError

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


def split(checkpoint: Checkpoint) -> dict[str, Exportable]:
    """Returns the components of a checkpoint by name, in the order in which they run.

    Raises:
        SignatureError: the model needs an input that cannot be made.
        RecipeError: an axis or output that the model has not; `split` for a model that is one tower; `merged` for one
            without an encoder and a decoder.
        SourceError: weights that the task needs are missing, or a processor does not fit the model.
    """
    name = _apart(checkpoint) if checkpoint.recipe.split else checkpoint.head.split
    if checkpoint.recipe.merged and name != "encoder_decoder":
        raise not_merged(checkpoint.source.architecture)
    module, _, function = SPLITS[name].partition(":")
    make = cast("Callable[[Checkpoint], dict[str, Exportable]]", getattr(import_module(module), function))
    return make(checkpoint)


def not_merged(architecture: str) -> RecipeError:
    """What `merged` is answered with for a model that is not an encoder and a decoder."""
    return RecipeError(
        "merged (--merged) puts the decoder of an encoder-decoder model into one graph, with and without a cache; "
        f"{architecture} is not exported as encoder and decoder: leave it out"
    )


def _apart(checkpoint: Checkpoint) -> str:
    """The row for a model of which `--split` makes several graphs; what the model can do tells."""
    from onnxport.exporters.components.prompted import is_prompted
    from onnxport.exporters.components.towers import is_dual_encoder

    for name, fits in {"towers": is_dual_encoder, "prompted": is_prompted}.items():
        if fits(checkpoint.model):
            return name
    raise RecipeError(
        f"split (--split) makes a component of each tower of a dual encoder, and of the two halves of a model that is "
        f"prompted with points; {checkpoint.source.architecture} is neither: leave it out"
    )
