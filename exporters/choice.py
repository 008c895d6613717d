"""A component that is made of two others instead of being traced: an input chooses which of them runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxport.verify.contract import GraphContract, TensorSpec

if TYPE_CHECKING:
    from onnxport.exporters.exportable import Exportable


@dataclass(frozen=True)
class Choice:
    """Two components in one graph.

    Attributes:
        condition: the input that chooses, bool [1].
        if_true, if_false: names of the components.
        passed: outputs that `if_true` lacks, each with the input that stands for it there.
    """

    condition: str
    if_true: str
    if_false: str
    passed: Mapping[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, str]:
        """The components that have to be made before."""
        return self.if_true, self.if_false

    def contract(self, exportable: Exportable, if_true: GraphContract, if_false: GraphContract) -> GraphContract:
        """Returns what the graph promises: the exportable's inputs and axes, and the outputs of the parts.

        An output of both has the shape that `if_true` gives it: a sum with the length of a cache holds in the other
        too, where that is 0.
        """
        dtypes = {spec.name: spec.dtype for spec in (*if_true.inputs, *if_false.inputs)}
        known = {spec.name: spec for spec in (*if_false.outputs, *if_true.outputs)}
        return GraphContract(
            inputs=tuple(
                TensorSpec(name=name, dtype="bool" if name == self.condition else dtypes[name], shape=dims)
                for name, dims in exportable.inputs.items()
            ),
            outputs=tuple(known[spec.name] for spec in if_false.outputs),
            axes=dict(exportable.axes),
            opsets=if_false.opsets,
            vocabularies=dict(exportable.vocabularies),
        )
