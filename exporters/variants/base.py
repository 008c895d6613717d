"""base: the graph as exported, under its final name."""

from __future__ import annotations

from pathlib import Path

from onnxport.exporters.graph import Variant
from onnxport.exporters.onnx_writer import data_file, read_skeleton, split_large, write_model
from onnxport.exporters.variants import VariantBuilder, VariantKind
from onnxport.exporters.variants.operators import weights_precision
from onnxport.verify.model_file import read_model


def build(builder: VariantBuilder, kind: VariantKind, path: Path) -> Variant:
    """Copies the graph and its weights, unless they are in their place already; nothing is computed."""
    source = builder.graph.path
    if not (path.exists() and path.samefile(source)):
        skeleton, weights = read_skeleton(source)
        weights += split_large(skeleton)
        write_model(skeleton, weights, path, external_data=builder.external_data)
    data = data_file(path)
    return Variant(
        kind.name,
        path,
        data if data.exists() else None,
        weights_precision(read_model(path).proto),
        level="none",
    )
