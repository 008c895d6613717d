"""ort: the optimised graph in ONNX Runtime's own format, for minimal builds and mobile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from onnxport.exporters.graph import Variant
from onnxport.exporters.variants import VariantBuilder, VariantKind

_NOT_REPRODUCIBLE = "not reproducible: ONNX Runtime orders the tables of a .ort file at random, so its hash changes"


def build(builder: VariantBuilder, kind: VariantKind, path: Path) -> Variant:
    """Writes the graph of the optimized variant, operator for operator, as `.ort`. It is always a single file.

    ONNX Runtime stores its operator tables in the order of a seeded hash, so two runs differ in bytes, not in content.

    Raises:
        VariantError: as for the optimized variant, or the weights pass the 2 GiB that the format can hold.
    """
    graph = builder.optimized
    builder.children.run(
        "onnxport.exporters.variants.session_worker:to_ort_format",
        builder.work_dir,
        graph=graph.path.name,
        target=str(path.resolve()),
    )
    variant = graph.written(kind.name, builder.level, path, None)
    return replace(variant, notes=(*graph.notes, _NOT_REPRODUCIBLE), facts_path=graph.path)
