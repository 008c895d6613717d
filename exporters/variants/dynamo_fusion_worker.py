"""Fusion of graphs made by torch.export, in a child process: onnxruntime.transformers' patterns do not fit these.

transformers' own fusions for ONNX Runtime on CPU where it has them, otherwise onnxscript's of norms and activations.
Both leave attention as single operators or compute exactly what it did, its mask included. The graph is loaded without
its weights; transformers' fusions read those that they join (query, key and value of one input), onnxscript's none.
"""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_ir

from onnxport.exporters.engines.transformers_exporters import fuse_with_transformers
from onnxport.exporters.onnx_writer import Weight, split_large, write_model
from onnxport.exporters.variants.operators import fused_since, import_used_domains, operator_counts
from onnxport.exporters.variants.tied_weights import multiply_by_tied_weights_in_place, share_equal_weights

_JOINED_UP_TO_BYTES = 2 * 1024**3
"""transformers' fusions hold what they join in memory: models above this go without."""
_INLINE_BYTES = 1024


def fuse(graph: str, fused: str, disabled: list[str]) -> dict[str, Any]:
    """Fuses `graph` and writes `fused` beside it (both are file names in the working folder).

    Args:
        graph: the graph, its weights in data files.
        fused: what is written, unless nothing changed.
        disabled: of `exporter_fusions`, `tied_weights` and `equal_weights`, what to leave out.

    Returns:
        `fusions`: new nodes by "domain:op"; `changed`: whether `fused` was written; `by`: whose fusions were tried;
        `broke`: the error of those that broke, which then count as not tried, or None.
    """
    model = onnx.load(graph, load_external_data=False)
    before = operator_counts(model)
    inputs, outputs = list(model.graph.input), list(model.graph.output)
    by, broke = "", None
    weights: list[Weight] = []
    if "tied_weights" not in disabled:
        multiply_by_tied_weights_in_place(model)
    if "exporter_fusions" not in disabled:
        logging.disable(logging.WARNING)
        try:
            by, model, weights = _fuse_layers(model)
        except Exception as e:  # noqa: BLE001  # patterns of others: whatever they raise, the graph itself is good
            where = traceback.extract_tb(e.__traceback__)[-1]
            broke = f"{type(e).__name__}: {e} ({Path(where.filename).name}, {where.name})"
    if "equal_weights" not in disabled:
        share_equal_weights(model)
    after = operator_counts(model)
    if after == before:
        return {"fusions": {}, "changed": False, "by": by, "broke": broke}
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    del model.graph.value_info[:]
    import_used_domains(model)
    write_model(model, [*weights, *split_large(model)], Path(fused), external_data="always")
    return {"fusions": fused_since(before, after), "changed": True, "by": by, "broke": broke}


def _fuse_layers(model: onnx.ModelProto) -> tuple[str, onnx.ModelProto, list[Weight]]:
    program = onnx_ir.from_proto(model)
    onnx_ir.external_data.set_base_dir(program.graph, Path.cwd())
    by = "transformers.exporters"
    if _external_bytes(program) > _JOINED_UP_TO_BYTES or not fuse_with_transformers(program):
        by = "onnxscript"
        _fuse_norms_and_activations(program)
    _require_whole_inputs(program)
    weights = _take_weights(program)
    fused: onnx.ModelProto = onnx_ir.to_proto(program)
    return by, fused, weights


def _fuse_norms_and_activations(program: onnx_ir.Model) -> None:
    from onnxscript.rewriter.ort_fusions import bias_gelu, erfgelu, gelu, rms_normalization, skip_normalization

    onnx_ir.passes.common.ShapeInferencePass()(program)
    erfgelu.fuse_erfgelu(program)
    rms_normalization.fuse_rms_normalization(program)
    skip_normalization.fuse_skip_layer_normalization(program)
    skip_normalization.fuse_skip_rms_normalization(program)
    gelu.fuse_gelu(program)
    bias_gelu.fuse_bias_gelu(program)
    onnx_ir.passes.common.RemoveUnusedNodesPass()(program)


def _require_whole_inputs(program: onnx_ir.Model) -> None:
    """onnxscript takes a sum that broadcasts its first addend (position embeddings) for a residual connection.

    The fused operator gives its output the shape of that addend.

    Raises:
        ValueError: the addends of a fused normalisation are not known to have one shape.
    """
    for node in program.graph.all_nodes():
        if node.op_type in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
            first, second = (value.shape if value is not None else None for value in node.inputs[:2])
            if first is None or second is None or list(first) != list(second):
                raise ValueError(f"{node.op_type} of {first} and {second}, which are not known to have one shape")


def _external_bytes(program: onnx_ir.Model) -> int:
    tensors = [value.const_value for value in program.graph.initializers.values()]
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, onnx_ir.ExternalTensor))


@dataclass(frozen=True)
class _Array:
    array: np.ndarray

    def __call__(self, file: BinaryIO) -> None:
        file.write(np.ascontiguousarray(self.array).data)


def _take_weights(program: onnx_ir.Model) -> list[Weight]:
    """Takes the large weights that fusion made out of the graph: they go to the file without protobuf."""
    weights = []
    for name, value in list(program.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or isinstance(tensor, onnx_ir.ExternalTensor) or tensor.nbytes < _INLINE_BYTES:
            continue
        array = tensor.numpy()
        weights.append(Weight(name, tensor.dtype.value, tuple(array.shape), array.nbytes, _Array(array)))
        program.graph.initializers.pop(name)
    return sorted(weights, key=lambda weight: weight.name)
