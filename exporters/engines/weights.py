"""Weights stream from the module's own tensors into the file: they never pass through protobuf or an engine.

An engine leaves each parameter as a named input of the graph, which is replaced here by an initializer that writes
itself. Parameters that share memory become one initializer, so tied weights stay tied.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

from onnxport.exporters.errors import EngineError
from onnxport.exporters.onnx_writer import Weight, split_large


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Returns the parameters and buffers by every name they have, tied ones too."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


@dataclass(frozen=True)
class _TensorData:
    tensor: Tensor

    def __call__(self, file: BinaryIO) -> None:
        flat = self.tensor.detach().cpu().contiguous().view(-1)
        if sys.byteorder == "big":
            raise EngineError("onnxport writes weights on little-endian machines only")
        file.write(memoryview(flat.view(torch.uint8).numpy()))  # type: ignore[arg-type]


def attach_weights(model: onnx.ModelProto, tensors: Mapping[str, Tensor], inputs: Collection[str]) -> list[Weight]:
    """Turns the parameters, which an engine left as graph inputs, into initializers that stream from their tensors.

    Args:
        model: the traced graph; changed in place.
        tensors: the module's parameters and buffers by the name of the graph input that stands for each.
        inputs: the real inputs.

    Raises:
        EngineError: a graph input is neither.
    """
    graph = model.graph
    left_over = [value.name for value in graph.input if value.name not in inputs and value.name not in tensors]
    if left_over:
        raise EngineError(
            f"the trace has an input {left_over[0]!r} that is neither an input nor a parameter of the module"
        )
    parameters = [value.name for value in graph.input if value.name not in inputs]
    kept = [value for value in graph.input if value.name in inputs]
    del graph.input[:]
    graph.input.extend(kept)

    one_name = _one_name_per_memory(parameters, tensors)
    _forget_identities(graph, one_name)
    _rename_inputs(graph, one_name)
    readers = Counter([*reads(graph), *(value.name for value in graph.output)])
    transposed = _fold_transposes(graph, readers, set(one_name.values()))
    weights = []
    for name in dict.fromkeys(one_name.values()):
        if readers[name]:
            tensor = tensors[name].t() if name in transposed else tensors[name]
            weights.append(_weight(transposed.get(name, name), tensor))
    _constants_to_initializers(graph)
    return sorted([*weights, *split_large(model)], key=lambda weight: weight.name)


def _weight(name: str, tensor: Tensor) -> Weight:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(str(tensor.dtype).removeprefix("torch.")))
    return Weight(name, element, tuple(tensor.shape), tensor.numel() * tensor.element_size(), _TensorData(tensor))


def _one_name_per_memory(names: list[str], tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Maps each name to the first that shares its memory: tied weights."""
    first: dict[Any, str] = {}
    result = {}
    for name in names:
        tensor = tensors[name]
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) if tensor.numel() else name
        result[name] = first.setdefault(key, name)
    return result


def _forget_identities(graph: onnx.GraphProto, one_name: dict[str, str]) -> None:
    """The tracer merges parameters of equal value through Identity nodes; their readers read the parameter itself."""
    outputs = {value.name for value in graph.output}
    kept = []
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in one_name and node.output[0] not in outputs:
            one_name[node.output[0]] = one_name[node.input[0]]
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


def _rename_inputs(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        for i, name in enumerate(node.input):
            if name in names:
                node.input[i] = names[name]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename_inputs(attribute.g, names)


def _fold_transposes(graph: onnx.GraphProto, readers: Counter[str], parameters: set[str]) -> dict[str, str]:
    """Stores a matrix transposed when Transposes are all that reads it (nn.Linear), and drops these nodes.

    A matrix that others read too stays as it is: folding would make a second copy of a tied weight. Returns the
    folded parameters with the name of the value that takes their place.
    """
    swaps: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        if node.op_type == "Transpose" and node.input[0] in parameters and _permutation(node) == [1, 0]:
            swaps.setdefault(node.input[0], []).append(node)
    folded = {name: nodes for name, nodes in swaps.items() if len(nodes) == readers[name]}
    # A layer that is used several times (ALBERT) transposes its matrix each time: one name serves them all.
    _rename_inputs(graph, {node.output[0]: nodes[0].output[0] for nodes in folded.values() for node in nodes[1:]})
    for nodes in folded.values():
        for node in nodes:
            graph.node.remove(node)
    return {name: nodes[0].output[0] for name, nodes in folded.items()}


def _permutation(node: onnx.NodeProto) -> list[int]:
    return next((list(attribute.ints) for attribute in node.attribute if attribute.name == "perm"), [])


def reads(graph: onnx.GraphProto) -> list[str]:
    """Every value that a node reads, as often as it is read, sub-graphs included."""
    nested = [name for node in graph.node for a in node.attribute if a.HasField("g") for name in reads(a.g)]
    return [name for node in graph.node for name in node.input] + nested


def _constants_to_initializers(graph: onnx.GraphProto, min_size_bytes: int = 1024) -> None:
    """A large Constant (a tensor that is neither parameter nor buffer) becomes an initializer, as weights are."""
    kept = []
    for node in graph.node:
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type == "Constant" and value is not None and len(value.raw_data) >= min_size_bytes:
            tensor = numpy_helper.from_array(numpy_helper.to_array(value), node.output[0])
            graph.initializer.append(tensor)
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)
