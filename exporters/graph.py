"""A graph on disk and what it promises. Holds a path, never a proto: models reach gigabytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from onnxport.exporters.onnx_writer import Weight
from onnxport.verify.contract import GraphContract

TORCH_EXPORT = "torch.export"
"""Producer that a graph made by torch.export names: its fusions are not those of a TorchScript graph."""


@dataclass(frozen=True)
class FusionHints:
    """What onnxruntime.transformers must be told to match attention. None or 0: not known."""

    model_type: str | None = None
    """transformers' `config.model_type` ("bert", "distilbert")."""
    num_heads: int = 0
    hidden_size: int = 0


@dataclass(frozen=True)
class TracedModel:
    """A module as an engine leaves it: the graph, and weights that are written straight from the module's tensors."""

    skeleton: onnx.ModelProto
    weights: Sequence[Weight]


@dataclass(frozen=True)
class Graph:
    """One exported component: the `.onnx` file, single or with a data file beside it, and what it promises.

    `example`: sizes of the axes at which the graph is known to run; empty: not known.
    """

    component: str
    path: Path
    contract: GraphContract
    hints: FusionHints = FusionHints()
    example: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Variant:
    """One serialised form of a component, in its final place and under its final name.

    `path` is the graph file; `external_data` its weights file, if any, in the same folder. `fusions` counts fused
    nodes by "domain:op". `session_options` is what a consumer should load the file with. `facts_path` is the ONNX file
    to read opsets and op counts from, where `path` itself is not ONNX (.ort). `notes` are for a person: a stage that
    did nothing says so.
    """

    name: str
    path: Path
    external_data: Path | None
    precision: str
    level: str
    portable: bool = True
    fusions: Mapping[str, int] = field(default_factory=dict)
    session_options: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    facts_path: Path | None = None
