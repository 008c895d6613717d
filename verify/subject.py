"""A subject: one graph file under test, with everything that is claimed about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnxport.verify.contract import GraphContract
from onnxport.verify.relations import Invariant
from onnxport.verify.runners import CPU
from onnxport.verify.tolerance import Criterion


@dataclass(frozen=True)
class Subject:
    """One graph file under test.

    Attributes:
        component, variant: what the results are filed under ("model", "optimized").
        path: the `.onnx` or `.ort` file.
        contract: what the file must say of itself; `opsets` are those of this variant.
        criterion: how far its outputs may be from the reference.
        provider: execution provider to run on.
        session_options: what the file is loaded with (keys as in `OrtRunner`).
        required_fusions: operator ("Attention", or "com.microsoft:Attention") to the least number of nodes of it.
        fusions: what was recorded when the file was made: "domain:op" to the number of nodes.
        invariants: relation (`relations.RELATIONS`) to whether the reference keeps it; None: it was not measured.
        plants_faults: whether faults are planted in it, to see that the cases show them. Once is enough for the
            variants of one graph: cases and reference are theirs together.
    """

    component: str
    variant: str
    path: Path
    contract: GraphContract
    criterion: Criterion
    provider: str = CPU
    session_options: Mapping[str, str] = field(default_factory=dict)
    required_fusions: Mapping[str, int] = field(default_factory=dict)
    fusions: Mapping[str, int] = field(default_factory=dict)
    invariants: Mapping[str, Invariant] | None = None
    plants_faults: bool = True

    @property
    def is_onnx(self) -> bool:
        """Whether `path` holds ONNX protos; `.ort` is ONNX Runtime's own format."""
        return self.path.suffix != ".ort"
