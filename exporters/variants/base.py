"""base: the graph as exported, under its final name."""

from __future__ import annotations

from pathlib import Path

import onnx

from onnxport.exporters.graph import Variant
from onnxport.exporters.onnx_writer import read_skeleton, split_large, write_model
from onnxport.exporters.variants import VariantBuilder, VariantKind
from onnxport.exporters.variants.operators import weights_precision


def build(builder: VariantBuilder, kind: VariantKind, path: Path) -> Variant:
    """Writes the graph and its weights; nothing is computed."""
    precision = weights_precision(onnx.load(builder.graph.path, load_external_data=False))
    skeleton, weights = read_skeleton(builder.graph.path)
    weights += split_large(skeleton)
    data = write_model(skeleton, weights, path, external_data=builder.external_data)
    return Variant(kind.name, path, data, precision, level="none")
