"""What the graph of any engine is held to before it is handed on: inputs that it reads, types, ranks, signature."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import torch
from onnx import helper
from torch import Tensor

from onnxport.exporters.engines.module_scopes import drop_other_metadata
from onnxport.exporters.engines.weights import reads
from onnxport.exporters.errors import EngineError, ReadBackError
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.verify.contract import GraphContract, TensorSpec
from onnxport.verify.graph_facts import dtype_name


def require_inputs_that_matter(model: onnx.ModelProto, exportable: Exportable, inputs: Mapping[str, Tensor]) -> None:
    """An input that no node reads, but that changes what PyTorch returns, was frozen into the graph.

    Raises:
        EngineError: there is one.
    """
    read = set(reads(model.graph)) | {output.name for output in model.graph.output}
    unread = [name for name in inputs if name not in read]
    if not unread:
        return
    other = to_tensors(exportable.sample(exportable.example, np.random.default_rng(1)))
    with torch.inference_mode():
        before = exportable.run(inputs)
        for name in unread:
            after = exportable.run({**inputs, name: other[name]})
            if any(not torch.equal(before[output], after[output]) for output in before):
                raise EngineError(
                    f"the trace of {exportable.source.architecture} does not read input {name!r}, although PyTorch's "
                    "result depends on it: its example value became a constant. Keep it a tensor all the way (no "
                    "tolist, numpy or Python numbers in forward), or move that part out of forward"
                )


def require_agreement(model: onnx.ModelProto, contract: GraphContract) -> None:
    """Compares what the tracer inferred with what PyTorch was seen to take and return, before that is written over it.

    Raises:
        ReadBackError: an element type or a number of dimensions differs.
    """
    differences = []
    inferred = {value.name: value.type.tensor_type for value in (*model.graph.input, *model.graph.output)}
    for spec in (*contract.inputs, *contract.outputs):
        if spec.name not in inferred:  # an input that nothing reads
            continue
        traced = inferred[spec.name]
        dtype, rank = dtype_name(traced.elem_type), len(traced.shape.dim)
        if traced.elem_type and dtype != spec.dtype:
            differences.append(f"{spec.name} is {dtype}, in PyTorch {spec.dtype}")
        if traced.HasField("shape") and rank != len(spec.shape):
            differences.append(f"{spec.name} has {rank} dimensions, in PyTorch {len(spec.shape)}")
    if differences:
        raise ReadBackError(
            f"the traced graph does not return what PyTorch does: {'; '.join(differences)}; try another --opset"
        )


def sign(model: onnx.ModelProto, contract: GraphContract) -> None:
    """Writes the proven shapes over those the tracer inferred, and drops what only the tracer needed."""
    del model.graph.input[:]
    model.graph.input.extend(value_info(spec) for spec in contract.inputs)
    del model.graph.output[:]
    model.graph.output.extend(value_info(spec) for spec in contract.outputs)
    model.graph.name = "main_graph"
    model.graph.ClearField("doc_string")
    del model.graph.value_info[:]
    for node in model.graph.node:
        node.ClearField("doc_string")
        drop_other_metadata(node)


def value_info(spec: TensorSpec) -> onnx.ValueInfoProto:
    """Returns an input or output as a graph states it."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(spec.dtype))
    return helper.make_tensor_value_info(spec.name, element, list(spec.shape))
