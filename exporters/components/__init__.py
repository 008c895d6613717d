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
}
"""What a task's head asks for, and the function that makes its components."""


def split(checkpoint: Checkpoint) -> dict[str, Exportable]:
    """Returns the components of a checkpoint by name, in the order in which they run.

    Raises:
        SignatureError: the model needs an input that cannot be made.
        RecipeError: an axis or output that the model has not; `split` for a model that is one tower.
        SourceError: weights that the task needs are missing, or a processor does not fit the model.
    """
    name = checkpoint.head.split
    if checkpoint.recipe.split and name != "towers":
        raise RecipeError(
            f"--split makes a component of each tower of a dual encoder, and {checkpoint.source.architecture} is none; "
            "leave it out"
        )
    module, _, function = SPLITS[name].partition(":")
    make = cast("Callable[[Checkpoint], dict[str, Exportable]]", getattr(import_module(module), function))
    return make(checkpoint)
