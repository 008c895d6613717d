"""Is attention masked by padding alone?

onnxruntime.transformers' attention patterns look for the padding mask and drop what is combined with it: a causal or
windowed mask disappears, and the fused graph is wrong (a BERT decoder by half of its output's RMS) without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

_ORDERINGS = {"Less", "LessOrEqual", "Greater", "GreaterOrEqual"}
_SIZES = {"Shape", "Size"}
_OUTSIDE_A_MASK = {"MatMul", "Gemm", "Conv", "Einsum", "LayerNormalization", *_SIZES}


def compares_positions(model: onnx.ModelProto) -> bool:
    """Returns whether a mask or bias under a Softmax relates positions, as causal and windowed ones do.

    Signs of it: Trilu, an ordering (less, greater) of two computed values, or a constant boolean matrix.
    """
    graph = model.graph
    producers = {name: node for node in graph.node for name in node.output}
    constants = {t.name: t for t in graph.initializer}
    constants |= {n.output[0]: n.attribute[0].t for n in graph.node if n.op_type == "Constant"}
    seen: set[str] = set()
    for softmax in graph.node:
        if softmax.op_type != "Softmax":
            continue
        for name in _upwards(softmax.input[0], producers, _OUTSIDE_A_MASK, seen):
            if name in constants:
                if _is_boolean_matrix(constants[name]):
                    return True
                continue
            node = producers.get(name)
            if node is not None and (node.op_type == "Trilu" or _orders_computed_values(node, producers, constants)):
                return True
    return False


def _orders_computed_values(
    node: onnx.NodeProto, producers: Mapping[str, onnx.NodeProto], constants: Mapping[str, onnx.TensorProto]
) -> bool:
    if node.op_type not in _ORDERINGS:
        return False
    for name in _upwards(node.output[0], producers, _SIZES, set()):
        producer = producers.get(name)
        if producer is not None and len({i for i in producer.input if i and i not in constants}) > 1:
            return True
    return False


def _upwards(name: str, producers: Mapping[str, onnx.NodeProto], stop: set[str], seen: set[str]) -> Iterator[str]:
    """Yields the values that `name` is computed from, itself included, each once; does not go through `stop`."""
    pending = [name]
    while pending:
        name = pending.pop()
        if not name or name in seen:
            continue
        seen.add(name)
        yield name
        node = producers.get(name)
        if node is not None and node.op_type not in stop:
            pending.extend(node.input)


def _is_boolean_matrix(tensor: onnx.TensorProto) -> bool:
    if tensor.data_type not in (onnx.TensorProto.BOOL, onnx.TensorProto.UINT8):
        return False
    return len([dim for dim in tensor.dims if dim > 1]) > 1
