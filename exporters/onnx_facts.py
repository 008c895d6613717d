"""What an ONNX file says of itself, read without its weights: any exporter's file, not only ours."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import onnx
import onnx.helper
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from onnxport.exporters.errors import ModelFileError
from onnxport.verify.contract import Dim, TensorSpec

ONNX_DOMAIN = "ai.onnx"
NCHWC_DOMAIN = "com.microsoft.nchwc"
UNKNOWN_DIM = "?"
UNKNOWN_RANK = ("...",)

# The first ONNX Runtime release that loads a file, tried against the releases from 1.15 to 1.32; older entries follow
# the ONNX version that a release was built with.
_FIRST_RUNTIME_BY_OPSET = {
    13: (1, 7), 14: (1, 8), 15: (1, 9), 16: (1, 11), 17: (1, 12), 18: (1, 14), 19: (1, 15), 20: (1, 17),
    21: (1, 18), 22: (1, 21), 23: (1, 23), 24: (1, 24), 25: (1, 24), 26: (1, 25), 27: (1, 32), 28: (1, 32),
}  # fmt: skip
_FIRST_RUNTIME_BY_IR = {
    7: (1, 5),
    8: (1, 9),
    9: (1, 15),
    10: (1, 18),
    11: (1, 23),
    12: (1, 24),
    13: (1, 24),
    14: (1, 32),
}
_FIRST_RUNTIME_BY_CONTRIB_OP = {
    "GatherBlockQuantized": (1, 20),
    "GemmaRotaryEmbedding": (1, 18),
    "GroupQueryAttention": (1, 16),
    "MatMulNBits": (1, 16),
    "MoE": (1, 17),
    "MultiHeadAttention": (1, 16),
    "QMoE": (1, 18),
    "QuickGelu": (1, 16),
    "RotaryEmbedding": (1, 16),
    "SkipSimplifiedLayerNormalization": (1, 16),
    "SparseAttention": (1, 18),
}


@dataclass(frozen=True)
class Weights:
    """The initializers of a graph and its subgraphs. `bytes_by_dtype`: numpy's dtype name to bytes of values."""

    count: int
    elements: int
    bytes_by_dtype: Mapping[str, int]


@dataclass(frozen=True)
class GraphFacts:
    """The facts of one ONNX file.

    Attributes:
        inputs, outputs: dynamic dimensions by name, "?" where they have none; `("...",)` where the rank is unknown.
            Initializers that are listed as inputs (IR version 3) are not inputs.
        opsets: domain to version, "" being the ONNX domain.
        ops: "domain:op" to number of nodes, "ai.onnx" being the ONNX domain; subgraphs and the bodies of local
            functions count, each body once.
        external_data: the weights files that the graph names, as it names them; `missing_data` those that are not in
            the folder of the graph, or outside it.
        size_bytes: the file and the external data that is there.
        portable: no operators of the NCHWc layout, which are tied to the machine that wrote them.
        min_onnxruntime: the first release that loads this IR version, ONNX opset and these contrib operators; "unknown"
            when one of them is newer than what this onnxport knows.
    """

    path: Path
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    opsets: Mapping[str, int]
    ir_version: int
    producer: str
    ops: Mapping[str, int]
    weights: Weights
    external_data: tuple[str, ...]
    missing_data: tuple[str, ...]
    size_bytes: int
    portable: bool
    min_onnxruntime: str


def read_facts(path: Path) -> GraphFacts:
    """Reads the facts of an ONNX file; its external data is neither needed nor loaded.

    Raises:
        ModelFileError: the file is missing, or is not an ONNX model (another format, truncated, empty).
    """
    model = _load(path)
    nodes = [*_nodes(model.graph.node), *(node for body in model.functions for node in _nodes(body.node))]
    attributes = [attribute for node in nodes for attribute in node.attribute]
    graphs = [model.graph, *(graph for attribute in attributes for graph in _subgraphs(attribute))]
    weights = [tensor for graph in graphs for tensor in _initializers(graph)]
    constants = [tensor for attribute in attributes for tensor in (attribute.t, *attribute.tensors)]

    ops = Counter(f"{node.domain or ONNX_DOMAIN}:{node.op_type}" for node in nodes)
    opsets = {"" if entry.domain == ONNX_DOMAIN else entry.domain: entry.version for entry in model.opset_import}
    external = sorted({name for tensor in (*weights, *constants) for name in _external_location(tensor)})
    present = [path.parent / name for name in external if _is_beside(path, name)]
    initialized = {tensor.name for tensor in model.graph.initializer}
    return GraphFacts(
        path=path,
        inputs=tuple(_tensor_spec(value) for value in model.graph.input if value.name not in initialized),
        outputs=tuple(_tensor_spec(value) for value in model.graph.output),
        opsets=dict(sorted(opsets.items())),
        ir_version=model.ir_version,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        ops=dict(sorted(ops.items())),
        weights=_weigh(weights),
        external_data=tuple(external),
        missing_data=tuple(name for name in external if not _is_beside(path, name)),
        size_bytes=path.stat().st_size + sum(file.stat().st_size for file in present),
        portable=not any(op.startswith(f"{NCHWC_DOMAIN}:") for op in ops),
        min_onnxruntime=_min_onnxruntime(model.ir_version, opsets.get("", 0), ops),
    )


def _load(path: Path) -> onnx.ModelProto:
    advice = "Give the path of a complete .onnx file."
    try:
        data = path.read_bytes()
    except OSError as e:
        raise ModelFileError(f"{path} cannot be read: {e.strerror or e}. {advice}") from e
    if not data:
        raise ModelFileError(f"{path} is empty. {advice}")
    if data[4:8] == b"ORTM":
        raise ModelFileError(f"{path} is in ONNX Runtime's own .ort format, which only ONNX Runtime reads. {advice}")
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError as e:
        raise ModelFileError(f"{path} is not an ONNX model, or is truncated: {e}. {advice}") from e
    # Protobuf reads much that is no model without complaint: a model has these.
    if model.ir_version < 1 or not model.opset_import or not (model.graph.node or model.graph.output):
        raise ModelFileError(
            f"{path} is not a whole ONNX model: it has IR version {model.ir_version}, {len(model.opset_import)} opset "
            f"imports, {len(model.graph.node)} nodes and {len(model.graph.output)} outputs. {advice}"
        )
    return model


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yields the nodes and those of their subgraphs, at every depth."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in _subgraphs(attribute):
                yield from _nodes(graph.node)


def _subgraphs(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def _initializers(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values


def _external_location(tensor: onnx.TensorProto) -> Iterator[str]:
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        yield from (entry.value for entry in tensor.external_data if entry.key == "location")


def _is_beside(path: Path, name: str) -> bool:
    """Whether the data is where ONNX Runtime would accept it: inside the folder of the graph."""
    pure = PurePosixPath(name)
    return not pure.is_absolute() and ".." not in pure.parts and (path.parent / name).is_file()


def _weigh(weights: Iterable[onnx.TensorProto]) -> Weights:
    count = elements = 0
    sizes: Counter[str] = Counter()
    for tensor in weights:
        dtype = _dtype_name(tensor.data_type)
        values = math.prod(tensor.dims)
        count += 1
        elements += values
        sizes[dtype] += sum(map(len, tensor.string_data)) if dtype == "string" else -(-values * _bits(tensor) // 8)
    return Weights(count, elements, dict(sorted(sizes.items())))


def _bits(tensor: onnx.TensorProto) -> int:
    name = _dtype_name(tensor.data_type)
    packed = re.match(r"u?int([24])$|float(4)_", name)
    if packed:
        return int(packed[1] or packed[2])
    return 0 if name == "unknown" else onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize * 8


def _dtype_name(data_type: int) -> str:
    """Returns numpy's name of a TensorProto data type; "string" for strings, "unknown" for what this onnx lacks."""
    if data_type == onnx.TensorProto.STRING:
        return "string"
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(data_type).name
    except KeyError:
        return "unknown"


def _tensor_spec(value: onnx.ValueInfoProto) -> TensorSpec:
    if not value.type.HasField("tensor_type"):
        kind = str(value.type.WhichOneof("value") or "unknown").removesuffix("_type")
        return TensorSpec(name=value.name, dtype=kind, shape=UNKNOWN_RANK)
    tensor = value.type.tensor_type
    shape = tuple(map(_dim, tensor.shape.dim)) if tensor.HasField("shape") else UNKNOWN_RANK
    return TensorSpec(name=value.name, dtype=_dtype_name(tensor.elem_type), shape=shape)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value"):
        return dim.dim_value
    return dim.dim_param or UNKNOWN_DIM


def _min_onnxruntime(ir_version: int, opset: int, ops: Iterable[str]) -> str:
    needs = [
        _since(_FIRST_RUNTIME_BY_IR, ir_version),
        _since(_FIRST_RUNTIME_BY_OPSET, opset),
        *(_FIRST_RUNTIME_BY_CONTRIB_OP.get(op.removeprefix("com.microsoft:"), (1, 0)) for op in ops),
    ]
    known = [release for release in needs if release is not None]
    return ".".join(map(str, max(known))) if len(known) == len(needs) else "unknown"


def _since(table: Mapping[int, tuple[int, int]], version: int) -> tuple[int, int] | None:
    if version < min(table):
        return (1, 0)
    return table.get(version)
