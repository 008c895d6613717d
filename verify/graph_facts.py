"""What an ONNX file says of itself, read once. Holds no proto: a single-file model is as large as its weights."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from onnxport.verify.contract import Dim, TensorSpec
from onnxport.verify.errors import VerificationError
from onnxport.verify.runners import one_line


@dataclass(frozen=True)
class ExternalTensor:
    """A tensor whose data lies in another file: `location` is relative to the graph's folder.

    `size_bytes` is what the file claims for it, `needed_bytes` what its shape and dtype need.
    """

    name: str
    location: str
    offset_bytes: int
    size_bytes: int
    needed_bytes: int


@dataclass(frozen=True)
class GraphFacts:
    """What a file says of itself.

    Attributes:
        inputs, outputs: in the file's order; initializers that are listed as inputs are none. A dimension without a
            name is called `?<tensor>.<index>`; a shape that is not given at all is `(?<tensor>,)`.
        opsets: domain ("" is the ONNX domain) to version.
        ops: "domain:op" ("ai.onnx" is the ONNX domain) to the number of nodes, sub-graphs and functions included.
        external: every tensor stored outside the file.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    opsets: Mapping[str, int]
    ir_version: int
    ops: Mapping[str, int]
    external: tuple[ExternalTensor, ...]


def read_facts(path: Path) -> GraphFacts:
    """Reads a file without its external data.

    Raises:
        VerificationError: the file is missing or no ONNX model.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as e:
        raise VerificationError(f"{path.name} cannot be read: {e.strerror or e}. Give the path of a .onnx file.") from e
    except Exception as e:  # protobuf's DecodeError differs between its implementations
        raise VerificationError(f"{path.name} is no ONNX file: {one_line(e)}. Export it again.") from e
    try:
        return _facts(model)
    except (KeyError, ValueError) as e:
        raise VerificationError(
            f"{path.name} has a dtype, or an entry for external data, that cannot be understood ({e}). Export it again."
        ) from e


def _facts(model: onnx.ModelProto) -> GraphFacts:
    graph = model.graph
    stored = {tensor.name for tensor in graph.initializer} | {sparse.values.name for sparse in graph.sparse_initializer}
    nodes = [*_nodes(graph.node), *(node for function in model.functions for node in _nodes(function.node))]
    return GraphFacts(
        inputs=tuple(_spec(value) for value in graph.input if value.name not in stored),
        outputs=tuple(_spec(value) for value in graph.output),
        opsets={_domain(opset.domain): opset.version for opset in model.opset_import},
        ir_version=model.ir_version,
        ops=Counter(f"{_domain(node.domain) or 'ai.onnx'}:{node.op_type}" for node in nodes),
        external=tuple(_external(t) for t in _tensors(graph, nodes) if t.data_location == onnx.TensorProto.EXTERNAL),
    )


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs) if attribute.type in _GRAPH_TYPES else ():
                yield from _nodes(graph.node)


_GRAPH_TYPES = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
_TENSOR_TYPES = (onnx.AttributeProto.TENSOR, onnx.AttributeProto.TENSORS)


def _tensors(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type in _TENSOR_TYPES:
                yield from (attribute.t, *attribute.tensors)
            elif attribute.type in _GRAPH_TYPES:
                for inner in (attribute.g, *attribute.graphs):
                    yield from inner.initializer


def _external(tensor: onnx.TensorProto) -> ExternalTensor:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    needed = (math.prod(tensor.dims) * _bits(tensor.data_type) + 7) // 8
    return ExternalTensor(
        name=tensor.name,
        location=entries.get("location", ""),
        offset_bytes=int(entries.get("offset", "0")),
        size_bytes=int(entries.get("length", needed)),
        needed_bytes=needed,
    )


def _bits(data_type: int) -> int:
    name = onnx.TensorProto.DataType.Name(data_type)  # numpy has no type below 8 bits; in the file these are packed
    if name.endswith("INT4") or name.startswith("FLOAT4"):
        return 4
    return 2 if name.endswith("INT2") else 8 * onnx.helper.tensor_dtype_to_np_dtype(data_type).itemsize


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        return TensorSpec(name=value.name, dtype=value.type.WhichOneof("value") or "none", shape=())
    shape: list[Dim] = [] if tensor.HasField("shape") else [f"?{value.name}"]
    for i, dim in enumerate(tensor.shape.dim):
        shape.append(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"?{value.name}.{i}")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name if tensor.elem_type else "none"
    return TensorSpec(name=value.name, dtype=dtype, shape=tuple(shape))
