"""fp16: the fused graph with its weights and arithmetic in float16, its inputs and outputs as they were."""

from __future__ import annotations

from pathlib import Path

from onnxport.exporters.graph import Variant
from onnxport.exporters.variants import VariantBuilder, VariantKind
from onnxport.exporters.variants.lower_precision import convert


def build(builder: VariantBuilder, kind: VariantKind, path: Path) -> Variant:
    """Converts with onnxruntime.transformers' converter; the CPU provider runs the result by casting where it must.

    Raises:
        VariantError: the graph is not float32, the converter broke, or ONNX Runtime cannot load the result.
    """
    return convert(builder, kind, path, builder.fused, "onnxport.exporters.variants.fp16_worker:to_float16")
