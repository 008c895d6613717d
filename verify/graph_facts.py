"""What an ONNX file says of itself, any exporter's, read without its external data."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import onnx

from onnxport.verify.contract import Dim, TensorSpec
from onnxport.verify.errors import ModelFileError
from onnxport.verify.model_file import read_model


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
        inputs, outputs: in the file's order; initializers that are listed as inputs (IR version 3) are none. A
            dimension without a name is called `?<tensor>.<index>`, so that no two of them are taken for one axis; a
            shape that is not given at all is `(?<tensor>,)`.
        opsets: domain ("" is the ONNX domain) to version, sorted.
        ops: "domain:op" ("ai.onnx" is the ONNX domain) to the number of nodes, sorted; subgraphs and the bodies of
            local functions count, each body once.
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
        ModelFileError: the file is missing, or is not an ONNX model (another format, truncated, empty).
    """
    return facts_of(read_model(path).proto, path)


def facts_of(model: onnx.ModelProto, path: Path) -> GraphFacts:
    """Returns the facts of a model that was parsed from `path`.

    Raises:
        ModelFileError: an entry for external data is malformed.
    """
    graph = model.graph
    stored = {tensor.name for tensor in graph.initializer} | {sparse.values.name for sparse in graph.sparse_initializer}
    opsets = {_domain(entry.domain): entry.version for entry in model.opset_import}
    ops = Counter(f"{_domain(node.domain) or 'ai.onnx'}:{node.op_type}" for node in _nodes(model))
    try:
        external = tuple(_external(t) for t in _tensors(model) if t.data_location == onnx.TensorProto.EXTERNAL)
    except ValueError as e:
        raise ModelFileError(
            f"{path} has an entry for external data that cannot be understood ({e}). Export it again."
        ) from e
    return GraphFacts(
        inputs=tuple(_spec(value) for value in graph.input if value.name not in stored),
        outputs=tuple(_spec(value) for value in graph.output),
        opsets=dict(sorted(opsets.items())),
        ir_version=model.ir_version,
        ops=dict(sorted(ops.items())),
        external=external,
    )


def initializers(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yields the initializers of the graph and of its subgraphs; of a sparse one, its values."""
    for graph in (model.graph, *(graph for node in _nodes(model) for graph in _subgraphs(node))):
        yield from graph.initializer
        yield from (sparse.values for sparse in graph.sparse_initializer)


def dtype_name(data_type: int) -> str:
    """Returns numpy's name of a TensorProto data type; "string" for strings, "unknown" for what this onnx lacks."""
    if data_type == onnx.TensorProto.STRING:
        return "string"
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(data_type).name
    except KeyError:
        return "unknown"


def stored_bytes(tensor: onnx.TensorProto) -> int:
    """Returns the bytes that the shape and dtype of a tensor need in a file; 0 for an unknown dtype.

    In a file, elements below 8 bits are packed. The size of strings is that of what is there.
    """
    name = dtype_name(tensor.data_type)
    if name == "string":
        return sum(map(len, tensor.string_data))
    if name == "unknown":
        return 0
    packed = re.match(r"u?int([24])$|float(4)_", name)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    bits = int(packed[1] or packed[2]) if packed else 8 * dtype.itemsize
    elements: int = math.prod(tensor.dims)
    return (elements * bits + 7) // 8


def is_named(dim: Dim) -> TypeGuard[str]:
    """Whether a dimension of a spec is an axis that has a name in the file."""
    return isinstance(dim, str) and not dim.startswith("?")


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yields the nodes of the graph and of local functions, and those of their subgraphs, at every depth."""
    yield from _with_inner(model.graph.node)
    for function in model.functions:
        yield from _with_inner(function.node)


def _with_inner(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for graph in _subgraphs(node):
            yield from _with_inner(graph.node)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from initializers(model)
    for node in _nodes(model):
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)


def _external(tensor: onnx.TensorProto) -> ExternalTensor:
    if dtype_name(tensor.data_type) == "unknown":
        raise ValueError(f"{tensor.name} has data type {tensor.data_type}, which onnx {onnx.__version__} lacks")
    entries = {entry.key: entry.value for entry in tensor.external_data}
    needed = stored_bytes(tensor)
    return ExternalTensor(
        name=tensor.name,
        location=entries.get("location", ""),
        offset_bytes=int(entries.get("offset", "0")),
        size_bytes=int(entries.get("length", needed)),
        needed_bytes=needed,
    )


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    unknown_rank: tuple[Dim, ...] = (f"?{value.name}",)
    if not value.type.HasField("tensor_type"):
        kind = str(value.type.WhichOneof("value") or "unknown").removesuffix("_type")
        return TensorSpec(name=value.name, dtype=kind, shape=unknown_rank)
    tensor = value.type.tensor_type
    shape = tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"?{value.name}.{i}"
        for i, dim in enumerate(tensor.shape.dim)
    )
    return TensorSpec(
        name=value.name,
        dtype=dtype_name(tensor.elem_type),
        shape=shape if tensor.HasField("shape") else unknown_rank,
    )
