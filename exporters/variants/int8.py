"""int8: the fused graph with weights quantised to 8 bits and activations quantised as they come."""

from __future__ import annotations

from pathlib import Path

from onnxport.exporters.graph import Variant
from onnxport.exporters.variants import VariantBuilder, VariantKind
from onnxport.exporters.variants.lower_precision import convert


def build(builder: VariantBuilder, kind: VariantKind, path: Path) -> Variant:
    """Quantises dynamically (no calibration data), one scale per output channel of each weight.

    A portable file keeps weights to 7 bits: with 8, processors that have no VNNI instructions overflow in silence, and
    what was verified here would not hold there.

    Raises:
        VariantError: the graph is not float32, the quantiser broke, or ONNX Runtime cannot load the result.
    """
    portable = builder.target == "portable"
    return convert(builder, kind, path, "onnxport.exporters.variants.int8_worker:quantize", seven_bits=portable)
