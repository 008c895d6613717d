"""Variants of a graph that is made of two others: each is made of the same variant of both, fused and quantised there.

Fusion and quantisation look for patterns in a main graph, and find none inside the branches of an `If`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from onnxport.exporters.choice import Choice
from onnxport.exporters.choice_graph import choice_graph
from onnxport.exporters.graph import Graph, Variant
from onnxport.exporters.onnx_writer import ExternalData, data_file, write_model
from onnxport.exporters.read_back import check_written
from onnxport.exporters.variants import KINDS, VariantBuilder


@dataclass(frozen=True)
class ChoiceBuilder:
    """Makes the variants of one graph. See `VariantBuilder`.

    Args:
        graph: the component; its file is written when the variant `base` is built.
        choice: what it is made of.
        if_true, if_false: of the parts, whose variant of that name must have been built before.
    """

    graph: Graph
    choice: Choice
    if_true: VariantBuilder
    if_false: VariantBuilder

    def prepare(self, names: Iterable[str]) -> None:
        """There is nothing to make ahead."""

    def build(self, name: str) -> Variant:
        """Makes one variant under its final name.

        Raises:
            VariantError: the parts do not go together, or ONNX Runtime cannot load the result.
            ReadBackError: what was written is not what the component promises.
            OSError: the file system refused (disk full, no permission).
        """
        path = KINDS[name].path(self.if_false.out_dir, self.graph.component)
        parts = [builder.made[name] for builder in (self.if_true, self.if_false)]
        fusions = Counter[str]()
        for part in parts:
            fusions.update(part.fusions)
        if name == "ort":
            source, data, shared = self._write_ort(path)
        else:
            source = None
            data, shared = self._write(parts[0].path, parts[1].path, path, self.if_false.external_data)
        if name == "base":
            check_written(path, self.graph.contract)
        return Variant(
            name,
            path,
            data,
            parts[1].precision,
            parts[1].level,
            portable=all(part.portable for part in parts),
            fusions=fusions,
            session_options=parts[1].session_options,
            notes=(self._note(name, shared),),
            facts_path=source,
        )

    def _note(self, name: str, shared: int) -> str:
        return (
            f"made of {name} of {self.choice.if_false} and {self.choice.if_true}: {shared} weights are in both and "
            "stored once"
        )

    def _write(self, if_true: Path, if_false: Path, path: Path, external_data: ExternalData) -> tuple[Path | None, int]:
        made = choice_graph(self.choice, if_true, if_false, self.graph.contract)
        for leftover in (path, data_file(path)):  # of parts that another engine made
            leftover.unlink(missing_ok=True)
        return write_model(made.traced.skeleton, made.traced.weights, path, external_data=external_data), made.shared

    def _write_ort(self, path: Path) -> tuple[Path, None, int]:
        """Writes the `.ort` file, and the ONNX graph that it holds into the work folder."""
        work_dir = self.if_false.work_dir.resolve()
        source = work_dir / f"{self.graph.component}.optimized.onnx"
        graphs = (self.if_true.optimized.path, self.if_false.optimized.path)
        _, shared = self._write(*graphs, source, "always")
        self.if_false.children.run(
            "onnxport.exporters.variants.session_worker:to_ort_format",
            work_dir,
            graph=source.name,
            target=str(path.resolve()),
        )
        return source, None, shared
