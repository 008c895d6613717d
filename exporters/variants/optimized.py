"""optimized: the fused graph after ONNX Runtime's own passes, as ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from onnxport.exporters.graph import Variant
from onnxport.exporters.onnx_facts import NCHWC_DOMAIN
from onnxport.exporters.onnx_writer import read_skeleton, split_large, write_model
from onnxport.exporters.variants import VariantBuilder, VariantKind
from onnxport.exporters.variants.operators import fused_since, operator_counts, weights_precision


@dataclass(frozen=True)
class OptimizedGraph:
    """The graph in the work folder, with the facts that every form of it shares."""

    path: Path
    precision: str
    portable: bool
    fusions: Mapping[str, int]
    session_options: Mapping[str, str]
    notes: tuple[str, ...]

    def written(self, name: str, level: str, path: Path, external_data: Path | None) -> Variant:
        """Returns the variant that these files of it are."""
        return Variant(
            name,
            path,
            external_data,
            self.precision,
            level,
            portable=self.portable,
            fusions=self.fusions,
            session_options=self.session_options,
            notes=self.notes,
        )


def build(builder: VariantBuilder, kind: VariantKind, path: Path) -> Variant:
    """Writes the optimised graph. See `optimize` for what it is and what it raises."""
    graph = builder.optimized
    skeleton, weights = read_skeleton(graph.path)
    data = write_model(skeleton, [*weights, *split_large(skeleton)], path, external_data=builder.external_data)
    return graph.written(kind.name, builder.level, path, data)


def optimize(builder: VariantBuilder) -> OptimizedGraph:
    """Runs ONNX Runtime's passes over the fused graph, and loads the result again in a fresh session.

    What ONNX Runtime does not change stays in the data files of the work folder.

    Raises:
        VariantError: ONNX Runtime cannot load the fused graph or its own result.
    """
    fused = builder.fused
    path = builder.intermediate("optimized.onnx")
    builder.children.run(
        "onnxport.exporters.variants.session_worker:optimize",
        builder.work_dir,
        graph=fused.path.name,
        optimized=path.name,
        level=builder.level,
        portable=builder.target == "portable",
    )
    model = onnx.load(path, load_external_data=False)
    before, after = (operator_counts(m) for m in (onnx.load(builder.source, load_external_data=False), model))
    notes = list(fused.notes)
    if after == before:
        notes.append(f"nothing changed: ONNX Runtime's passes at level {builder.level} left every operator as it was")
    return OptimizedGraph(
        path,
        weights_precision(model),
        portable=builder.target == "portable" and not any(key.startswith(f"{NCHWC_DOMAIN}:") for key in after),
        fusions=fused_since(before, after),
        session_options=_session_options(builder.level),
        notes=tuple(notes),
    )


def _session_options(level: str) -> dict[str, str]:
    """Returns what to load the graph with.

    A graph made at extended is meant for a session as it comes, which adds what suits its CPU. Whoever asked for less
    gets it only from a session that does less too.
    """
    return {} if level in ("extended", "all") else {"graph_optimization_level": level}
