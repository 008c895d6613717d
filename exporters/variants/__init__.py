"""Variants: one graph, several serialised forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onnxport.exporters.errors import VariantError
from onnxport.exporters.graph import Graph, Variant
from onnxport.exporters.onnx_writer import ExternalData, read_skeleton, split_large, write_model, write_reference
from onnxport.exporters.recipe import Level
from onnxport.exporters.variants.child import Children
from onnxport.verify.import_target import import_target

if TYPE_CHECKING:
    from onnxport.exporters.variants.fusion import FusedGraph
    from onnxport.exporters.variants.optimized import OptimizedGraph


@dataclass(frozen=True)
class VariantKind:
    """A serialised form. `builder` is "module:function"; `precision` None: whatever the graph was exported in."""

    name: str
    file: str
    precision: str | None
    builder: str

    def path(self, out_dir: Path, component: str) -> Path:
        """Returns the path of the graph file."""
        return out_dir / self.file.format(component=component)


_HERE = "onnxport.exporters.variants"
KINDS = {
    kind.name: kind
    for kind in (
        VariantKind("base", "{component}.onnx", None, f"{_HERE}.base:build"),
        VariantKind("optimized", "{component}_optimized.onnx", None, f"{_HERE}.optimized:build"),
        VariantKind("ort", "{component}.ort", None, f"{_HERE}.ort_format:build"),
        VariantKind("fp16", "{component}_fp16.onnx", "float16", f"{_HERE}.fp16:build"),
        VariantKind("int8", "{component}_quantized.onnx", "int8", f"{_HERE}.int8:build"),
    )
}
"""Every kind of variant, by name."""


@dataclass(frozen=True)
class VariantBuilder:
    """Makes the variants of one graph; what they share (the fused graph) is made once.

    Args:
        graph: the exported component.
        out_dir: where the variants go; made when missing.
        work_dir: where intermediate files go; best a folder above that of `graph.path`, else its weights are copied.
        level: ONNX Runtime's optimisation level of the serialised variants.
        target: "this-machine" allows passes whose result is tied to this CPU.
        external_data: whether weights go to a file beside the graph; "auto" by size.
        children: runs the steps that need a process of their own; whoever made it can end them.
        made: what was built, by name.
    """

    graph: Graph
    out_dir: Path
    work_dir: Path
    level: Level = "extended"
    target: Literal["portable", "this-machine"] = "portable"
    external_data: ExternalData = "auto"
    children: Children = field(default_factory=Children)
    made: dict[str, Variant] = field(default_factory=dict)

    def build(self, name: str) -> Variant:
        """Makes one variant under its final name in `out_dir`.

        Raises:
            VariantError: the kind is unknown, or a step failed.
            OSError: the file system refused (disk full, no permission).
        """
        if name not in KINDS:
            raise VariantError(f"unknown variant {name!r}; the kinds are {', '.join(KINDS)}.")
        kind = KINDS[name]
        path = kind.path(self.out_dir, self.graph.component)
        path.parent.mkdir(parents=True, exist_ok=True)
        build: Callable[[VariantBuilder, VariantKind, Path], Variant] = import_target(kind.builder)
        self.made[name] = build(self, kind, path)
        return self.made[name]

    def prepare(self, names: Iterable[str]) -> None:
        """Makes what these variants share, in child processes: meant for a thread, while this process does other work.

        Raises:
            VariantError, OSError: as `build` would.
        """
        if {"optimized", "ort"} & set(names):
            _ = self.optimized

    @cached_property
    def source(self) -> Path:
        """The graph in `work_dir`, with its weights in a file there or below."""
        path, work_dir = self.graph.path.resolve(), self.work_dir.resolve()
        self.work_dir.mkdir(parents=True, exist_ok=True)
        source = self.intermediate("source.onnx")
        if path.is_relative_to(work_dir):
            write_reference(path, source)
        else:
            skeleton, weights = read_skeleton(path)
            write_model(skeleton, [*weights, *split_large(skeleton)], source, external_data="always")
        return source

    @cached_property
    def fused(self) -> FusedGraph:
        """The graph after onnxruntime.transformers' fusions; the graph itself where none matched."""
        from onnxport.exporters.variants.fusion import fuse

        target = self.intermediate("fused.onnx")
        return fuse(self.source, self.graph.hints, target, self.children, sizes=self.graph.example)

    @cached_property
    def fused_but_embeddings(self) -> FusedGraph:
        """The same with the embedding layer left as single operators, which quantise better than the fused one."""
        from onnxport.exporters.variants.fusion import fuse

        target = self.intermediate("fused_layers.onnx")
        return fuse(self.source, self.graph.hints, target, self.children, sizes=self.graph.example, embeddings=False)

    @cached_property
    def optimized(self) -> OptimizedGraph:
        """The fused graph after ONNX Runtime's passes."""
        from onnxport.exporters.variants.optimized import optimize

        return optimize(self)

    def intermediate(self, suffix: str) -> Path:
        """Returns the path of a work file of this component."""
        return self.work_dir.resolve() / f"{self.graph.component}.{suffix}"
