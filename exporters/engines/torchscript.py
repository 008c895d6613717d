"""TorchScript tracing without weights: the graph comes from the trace, the weights straight from the module.

Weights as large as the model never pass through protobuf or the tracer: `torch.onnx.export(export_params=False)` leaves
each parameter as a named input, which is then replaced by an initializer that streams from the module's own tensor.
Parameters that share memory become one initializer, so tied weights stay tied.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

from onnxport.exporters.engines.control_flow import TracedReads, find_data_dependence
from onnxport.exporters.errors import EngineError, ReadBackError
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.exporters.graph import TracedModel
from onnxport.exporters.onnx_writer import Weight, split_large
from onnxport.verify.contract import GraphContract, TensorSpec
from onnxport.verify.graph_facts import dtype_name


class _ByKeyword(nn.Module):
    """Takes the inputs in the graph's order and hands them on by keyword: by position, some models swap them."""

    def __init__(self, exportable: Exportable, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = exportable.module
        self._exportable = exportable
        self._names = names
        # Tracing restores the wrapper's mode on the way out; a wrapper in train mode would put dropout back on.
        self.eval()

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(self._exportable.run(dict(zip(self._names, inputs, strict=True))).values())


def export_graph(exportable: Exportable, contract: GraphContract) -> TracedModel:
    """See `ExportFunction`."""
    contract = contract.written()
    names = tuple(spec.name for spec in contract.inputs)
    wrapper = _ByKeyword(exportable, names)
    inputs = to_tensors(exportable.sample(exportable.example, np.random.default_rng(0)))
    model = _trace(wrapper, exportable, inputs, contract)
    _require_inputs_that_matter(model, exportable, inputs)
    weights = _attach_weights(model, wrapper, names)
    _require_agreement(model, contract)
    _sign(model, contract)
    return TracedModel(model, weights)


def _trace(
    wrapper: _ByKeyword, exportable: Exportable, inputs: Mapping[str, Tensor], contract: GraphContract
) -> onnx.ModelProto:
    bare = io.BytesIO()
    dynamic = {
        spec.name: {i: dim for i, dim in enumerate(spec.shape) if isinstance(dim, str)}
        for spec in (*contract.inputs, *contract.outputs)
    }
    reads = TracedReads()
    with warnings.catch_warnings(record=True) as seen, reads:
        warnings.simplefilter("always")
        try:
            torch.onnx.export(
                wrapper,
                tuple(inputs.values()),
                bare,  # type: ignore[arg-type]  # a buffer works here, only the annotation lacks it
                dynamo=False,
                opset_version=contract.opsets[""],
                export_params=False,
                do_constant_folding=False,
                input_names=[spec.name for spec in contract.inputs],
                output_names=[spec.name for spec in contract.outputs],
                dynamic_axes=dynamic,
            )
        except Exception as e:
            reason = next((line.strip() for line in str(e).splitlines() if line.strip()), "no message")
            raise EngineError(
                f"TorchScript cannot export {exportable.source.architecture}: {type(e).__name__}: {reason[:400]}"
            ) from e
    suspects = {(w.filename, w.lineno) for w in seen if w.category.__name__ == "TracerWarning"} | reads.places
    if suspects:
        found = find_data_dependence(exportable, inputs, suspects)
        if found:
            raise EngineError(
                f"a trace of {exportable.source.architecture} would be wrong for other inputs: {found[0]}. A trace "
                "keeps the branch or number that the example took; write it with tensor operations (torch.where, "
                "masks), or move it out of forward"
            )
    model: onnx.ModelProto = onnx.ModelProto.FromString(bare.getvalue())
    return model


def _require_inputs_that_matter(model: onnx.ModelProto, exportable: Exportable, inputs: Mapping[str, Tensor]) -> None:
    """An input that no node reads, but that changes what PyTorch returns, was frozen into the graph."""
    read = set(_reads(model.graph)) | {output.name for output in model.graph.output}
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


@dataclass(frozen=True)
class _TensorData:
    tensor: Tensor

    def __call__(self, file: BinaryIO) -> None:
        flat = self.tensor.detach().cpu().contiguous().view(-1)
        if sys.byteorder == "big":
            raise EngineError("onnxport writes weights on little-endian machines only")
        file.write(memoryview(flat.view(torch.uint8).numpy()))  # type: ignore[arg-type]


def _attach_weights(model: onnx.ModelProto, wrapper: nn.Module, inputs: tuple[str, ...]) -> list[Weight]:
    """Turns the parameters, which the trace left as graph inputs, into streamed initializers."""
    graph = model.graph
    tensors: dict[str, Tensor] = {
        **dict(wrapper.named_parameters(remove_duplicate=False)),
        **dict(wrapper.named_buffers(remove_duplicate=False)),
    }
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
    readers = Counter([*_reads(graph), *(value.name for value in graph.output)])
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


def _reads(graph: onnx.GraphProto) -> list[str]:
    """Every value that a node reads, as often as it is read, sub-graphs included."""
    nested = [name for node in graph.node for a in node.attribute if a.HasField("g") for name in _reads(a.g)]
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


def _require_agreement(model: onnx.ModelProto, contract: GraphContract) -> None:
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


def _sign(model: onnx.ModelProto, contract: GraphContract) -> None:
    """Writes the proven shapes over those the tracer inferred, and drops what only the tracer needed."""
    del model.graph.input[:]
    model.graph.input.extend(_value_info(spec) for spec in contract.inputs)
    del model.graph.output[:]
    model.graph.output.extend(_value_info(spec) for spec in contract.outputs)
    model.graph.name = "main_graph"
    model.graph.ClearField("doc_string")
    del model.graph.value_info[:]
    for node in model.graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]


def _value_info(spec: TensorSpec) -> onnx.ValueInfoProto:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(spec.dtype))
    return helper.make_tensor_value_info(spec.name, element, list(spec.shape))
