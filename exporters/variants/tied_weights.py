"""Keeps a weight that serves twice in one copy.

A language model's decoder multiplies by the transposed word embedding. ONNX Runtime folds that Transpose into a second
copy of the largest weight of the model (BERT-base: 94 MB). FusedMatMul transposes while it multiplies instead.
"""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import onnx
from onnx import numpy_helper

from onnxport.exporters.variants.operators import MICROSOFT, nodes


def multiply_by_tied_weights_in_place(model: onnx.ModelProto) -> int:
    """Rewrites `MatMul(x, Transpose(W))` as `com.microsoft:FusedMatMul(x, W, transB=1)`; returns the number rewritten.

    Only where W is a float32 matrix in the initializers that something else reads too: elsewhere ONNX Runtime may fold
    the Transpose, and the copy it makes replaces W. The caller declares the com.microsoft domain.
    """
    graph = model.graph
    matrices = {t.name for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) == 2}
    readers = Counter(name for node in nodes(graph) for name in node.input)
    readers.update(output.name for output in graph.output)
    transposed = {
        node.output[0]: node
        for node in graph.node
        if node.op_type == "Transpose" and node.input[0] in matrices and readers[node.input[0]] > 1 and _swaps(node)
    }
    multiplied: dict[str, list[onnx.NodeProto]] = {name: [] for name in transposed}
    for node in graph.node:
        if node.op_type == "MatMul" and node.domain == "" and node.input[1] in transposed:
            multiplied[node.input[1]].append(node)

    rewritten = 0
    for name, matmuls in multiplied.items():
        if not matmuls or len(matmuls) != readers[name]:
            continue  # something else needs the transposed matrix: it exists anyway
        for node in matmuls:
            node.op_type, node.domain = "FusedMatMul", MICROSOFT
            node.input[1] = transposed[name].input[0]
            node.attribute.append(onnx.helper.make_attribute("transB", 1))
            rewritten += 1
        graph.node.remove(transposed[name])
    return rewritten


def share_equal_weights(model: onnx.ModelProto, min_size_bytes: int = 1024) -> int:
    """Keeps one of several equal inline initializers; returns how many went.

    Fusion merges Q, K and V layer by layer: where layers share their weights (ALBERT), it makes the same one each time.
    """
    graph = model.graph
    first: dict[tuple[int, tuple[int, ...], bytes], str] = {}
    instead: dict[str, str] = {}
    kept: list[onnx.TensorProto] = []
    for tensor in graph.initializer:
        if len(tensor.raw_data) >= min_size_bytes and tensor.data_location != onnx.TensorProto.EXTERNAL:
            key = (tensor.data_type, tuple(tensor.dims), hashlib.sha256(tensor.raw_data).digest())
            if key in first:
                instead[tensor.name] = first[key]
                continue
            first[key] = tensor.name
        kept.append(tensor)
    if instead:
        del graph.initializer[:]
        graph.initializer.extend(kept)
        for node in nodes(graph):
            for i, name in enumerate(node.input):
                node.input[i] = instead.get(name, name)
    return len(instead)


def multiply_by_copies(model: onnx.ModelProto) -> int:
    """Undoes the rewriting for a quantiser, which knows MatMul alone: two int8 copies are smaller than one in float32.

    `model` holds its weights. Returns how many nodes were rewritten.
    """
    graph = model.graph
    weights = {t.name: t for t in graph.initializer}
    copies: set[str] = set()
    rewritten = 0
    for node in graph.node:
        if node.op_type != "FusedMatMul" or node.input[1] not in weights or not _only_transposes(node):
            continue
        name = f"{node.input[1]}_transposed"
        if name not in copies:
            array = numpy_helper.to_array(weights[node.input[1]])
            graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array.T), name))
            copies.add(name)
        node.op_type, node.domain, node.input[1] = "MatMul", "", name
        del node.attribute[:]
        rewritten += 1
    return rewritten


def _only_transposes(node: onnx.NodeProto) -> bool:
    return [(a.name, a.i) for a in node.attribute] == [("transB", 1)]


def _swaps(node: onnx.NodeProto) -> bool:
    perm = next((list(a.ints) for a in node.attribute if a.name == "perm"), [1, 0])
    return perm == [1, 0]
