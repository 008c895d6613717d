"""Which value of a traced graph is the output of which module.

A module's output is the last value that the nodes of its call compute and others read. Every module of which that
cannot be said for certain is left out; those inside it are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxport.exporters.localization.calls import nodes_of_calls
from onnxport.exporters.localization.layers import LayerOutput
from onnxport.verify.dissection import Dissection


@dataclass(frozen=True)
class Match:
    """`value` of the graph is floating point tensor number `index` that call number `call` of `module` returns."""

    value: str
    module: str
    kind: str
    call: int
    index: int


@dataclass(frozen=True, eq=False)
class MatchedLayer:
    """A module whose output is `value` in the graph, and what PyTorch has for it in one case."""

    value: str
    module: str
    kind: str
    array: np.ndarray


def bind(matches: Sequence[Match], layers: Sequence[LayerOutput]) -> list[MatchedLayer]:
    """Returns the matches with what PyTorch has for them in the case that `layers` was recorded for.

    A module that took another way through that case has nothing to compare, and is left out.
    """
    found = {(layer.module, layer.call): layer.arrays for layer in layers}
    return [
        MatchedLayer(match.value, match.module, match.kind, arrays[match.index])
        for match in matches
        if len(arrays := found.get((match.module, match.call), ())) > match.index
    ]


class Scopes:
    """The modules of one model against its traced graph.

    Args:
        base: the graph as exported, with what the engine left on its nodes.
        layers: what `record_layers` returned.
    """

    def __init__(self, base: Dissection, layers: Sequence[LayerOutput]) -> None:
        self._base = base
        self._candidates: list[tuple[LayerOutput, list[str]]] = []
        for layer, numbers in nodes_of_calls(base.nodes, layers).items():
            values = self._leaving(numbers)
            if values and layer.arrays:
                self._candidates.append((layer, values))

    @property
    def values(self) -> list[str]:
        """Every value that may be the output of a module, in the order in which they are computed."""
        found = {value for _, values in self._candidates for value in values}
        return sorted(found, key=lambda value: self._base.place[value])

    def match(self, shapes: Mapping[str, tuple[tuple[int, ...], np.dtype]], *, leniently: bool = False) -> list[Match]:
        """Returns the modules whose output is found, in the order in which the graph computes them.

        Of several modules with the same output, the innermost is named.

        Args:
            shapes: of each of `values`, its shape and dtype for the inputs that were recorded; best at sizes that are
                all different.
            leniently: take the only value that leaves a module for its only output, whatever the shape: for a graph
                that is known to be wrong, perhaps in this.
        """
        found: dict[str, Match] = {}
        for layer, values in self._candidates:
            for index, array in enumerate(layer.arrays):
                if sum(other.shape == array.shape for other in layer.arrays) > 1:
                    continue  # which is which?
                fitting = [value for value in values if shapes.get(value) == (array.shape, array.dtype)]
                if leniently and not fitting and len(layer.arrays) == len(values) == 1:
                    fitting = values
                if fitting:
                    found.setdefault(fitting[-1], Match(fitting[-1], layer.module, layer.kind, layer.call, index))
        return sorted(found.values(), key=lambda match: self._base.place[match.value])

    def _leaving(self, scope: set[int]) -> list[str]:
        """Values computed in the scope that are read outside it, or are outputs of the graph; in order."""
        outputs = set(self._base.outputs)
        return [
            value
            for number in sorted(scope)
            for value in self._base.nodes[number].output
            if value in outputs or not scope.issuperset(self._base.readers.get(value, ()))
        ]
