"""Engines turn a module into a graph. One literal table; an engine's module loads when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from onnxport.exporters.environment import installed_version
from onnxport.exporters.errors import RecipeError
from onnxport.exporters.extras import install
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.suggestion import expected_one_of
from onnxport.verify.import_target import import_target

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
    """A row of the table: `opsets` are the versions it writes; it `needs` packages that the `extra` brings."""

    name: str
    target: str
    opsets: range
    needs: tuple[str, ...] = ()
    extra: str = "export"

    def load(self) -> ExportFunction:
        export_graph: ExportFunction = import_target(self.target)
        return export_graph

    @property
    def missing(self) -> list[str]:
        """The packages it needs that are not installed."""
        return [package for package in self.needs if installed_version(package) is None]


# In the order in which "auto" tries them.
ENGINES: Mapping[str, Engine] = {
    # Below 14, TorchScript export knows no scaled dot product attention.
    "torchscript": Engine("torchscript", "onnxport.exporters.engines.torchscript:export_graph", range(14, 21)),
    # Below 17, torch writes 18 without a word; above 25, what ONNX Runtime refuses.
    "dynamo": Engine("dynamo", "onnxport.exporters.engines.dynamo:export_graph", range(17, 26), needs=("onnxscript",)),
    # The same tracer; Optimum's patches need transformers below 4.58.
    "optimum": Engine(
        "optimum",
        "onnxport.exporters.engines.optimum_onnx:export_graph",
        range(14, 21),
        needs=("optimum-onnx",),
        extra="legacy",
    ),
}


def choose_engines(recipe: Recipe) -> tuple[Engine, ...]:
    """Returns the engine asked for; for "auto" all that are installed and write the opset, in the order to try them.

    Raises:
        RecipeError: no such engine, it is not installed, or none writes the opset; the message has the range.
    """
    if recipe.engine == "auto":
        candidates = [engine for engine in ENGINES.values() if not engine.missing]
    elif recipe.engine in ENGINES:
        candidates = [ENGINES[recipe.engine]]
    else:
        raise RecipeError(f"engine {recipe.engine!r} is not there; {expected_one_of(recipe.engine, ENGINES)}")
    for engine in candidates:
        if engine.missing:
            raise RecipeError(
                f"engine {engine.name} needs {', '.join(engine.missing)}, which is not installed; run "
                f"{install('export', engine.extra)} in an environment of its own"
            )
    fitting = tuple(engine for engine in candidates if recipe.opset in engine.opsets)
    if fitting:
        return fitting
    ranges = "; ".join(f"{engine.name}: {engine.opsets.start} to {engine.opsets.stop - 1}" for engine in candidates)
    raise RecipeError(
        f"opset {recipe.opset} cannot be written ({ranges}); choose an opset (--opset) in that range (default 17)"
    )
