"""Engines turn a module into a graph. One literal table; an engine's module loads when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from onnxport.exporters.errors import RecipeError
from onnxport.exporters.recipe import Recipe

if TYPE_CHECKING:
    from onnxport.exporters.exportable import Exportable
    from onnxport.exporters.graph import TracedModel
    from onnxport.verify.contract import GraphContract


class ExportFunction(Protocol):
    """Returns the graph of a module.

    Raises:
        EngineError: no graph computes the same as the module; the message says where and what to do.
    """

    def __call__(self, exportable: Exportable, contract: GraphContract) -> TracedModel: ...


@dataclass(frozen=True)
class Engine:
    """A row of the table: `opsets` are the versions it writes; `attention` the implementation it wants to see."""

    name: str
    target: str
    opsets: range
    attention: str

    def load(self) -> ExportFunction:
        module, _, name = self.target.partition(":")
        return cast(ExportFunction, getattr(import_module(module), name))


# In the order in which "auto" prefers them.
ENGINES: Mapping[str, Engine] = {
    # Below 14, TorchScript export knows no scaled dot product attention.
    "torchscript": Engine(
        "torchscript", "onnxport.exporters.engines.torchscript:export_graph", range(14, 21), attention="eager"
    ),
}


def choose_engine(recipe: Recipe) -> Engine:
    """Returns the engine asked for; "auto" is the first that writes the opset.

    Raises:
        RecipeError: no engine writes the opset; the message has the range.
    """
    candidates = list(ENGINES.values()) if recipe.engine == "auto" else [ENGINES[recipe.engine]]
    for engine in candidates:
        if recipe.opset in engine.opsets:
            return engine
    ranges = "; ".join(f"{engine.name}: {engine.opsets.start} to {engine.opsets.stop - 1}" for engine in candidates)
    raise RecipeError(
        f"opset {recipe.opset} cannot be written ({ranges}); choose an opset (--opset) in that range (default 17)"
    )
