"""The part of the float16 conversion that runs in a child process: the converter's package changes sys.path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnxruntime.transformers.onnx_model import OnnxModel

from onnxport.exporters.onnx_writer import split_large, write_model


def to_float16(graph: str, target: str) -> dict[str, Any]:
    """Writes `graph` in float16 to `target`, both in the working folder. The weights pass through memory.

    Values beyond float16's range become its largest (the converter's rule), so masks filled with float32's lowest
    value stay finite.
    """
    model = OnnxModel(onnx.load(graph))
    model.convert_float_to_float16(keep_io_types=True)
    model.topological_sort()
    proto = model.model
    write_model(proto, split_large(proto), Path(target), external_data="always")
    return {}
