"""The part of quantisation that runs in a child process: it logs through the root logger and holds all weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from onnxport.exporters.onnx_writer import split_large, write_model
from onnxport.exporters.variants.tied_weights import multiply_by_copies


def quantize(graph: str, target: str) -> dict[str, Any]:
    """Writes `graph` with int8 weights to `target`, both in the working folder."""
    model = onnx.load(graph)
    if multiply_by_copies(model):
        graph = f"{target}.untied.onnx"
        write_model(model, split_large(model), Path(graph), external_data="always")
    del model
    Path(f"{target}.data").unlink(missing_ok=True)  # the quantiser refuses to write over an earlier run's
    quantize_dynamic(
        Path(graph),
        Path(target),
        per_channel=True,
        weight_type=QuantType.QInt8,
        use_external_data_format=True,
        # Shape inference stops at com.microsoft operators; what it leaves untyped is float32.
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
    )
    return {}
