"""Computes what a graph computes from constants alone.

The patterns of onnxruntime.transformers look for literal values: BERT's embedding block is not found while the bounds
of its position slice are `Unsqueeze(Constant)`. Large weights are external here and are left alone.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

MAX_ELEMENTS = 4096
"""Larger results stay computed: they would only grow the file."""

_NOT_CONSTANT = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Dropout",
}


def fold_constants(model: onnx.ModelProto) -> int:
    """Replaces nodes whose inputs are all inline constants by their values; returns how many nodes went.

    ONNX Runtime itself computes the values, in one run. Nodes with sub-graphs, of other domains or with random results
    stay.
    """
    graph = model.graph
    inline = [t for t in graph.initializer if t.data_location != onnx.TensorProto.EXTERNAL]
    known = {t.name for t in inline} - {i.name for i in graph.input}
    constant: list[onnx.NodeProto] = []
    rest: list[onnx.NodeProto] = []
    for node in graph.node:
        if _foldable(node) and all(name in known for name in node.input if name):
            constant.append(node)
            known.update(node.output)
        else:
            rest.append(node)

    computed = {name for node in constant if node.op_type != "Constant" for name in node.output if name}
    if not computed:
        return 0
    outputs = {o.name for o in graph.output}
    values = _compute(model, constant, inline, sorted(computed))
    small = {n for n, v in values.items() if isinstance(v, np.ndarray) and v.size <= MAX_ELEMENTS and n not in outputs}
    stay = [n for n in constant if n.op_type == "Constant" or not all(name in small for name in n.output if name)]
    kept = [*stay, *rest]  # what is constant depends on nothing else, so it may come first
    read = {name for node in kept for name in _all_inputs(node)}
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(values[name], name) for name in sorted(small & read))
    return len(constant) + len(rest) - len(kept)


def _foldable(node: onnx.NodeProto) -> bool:
    if node.domain not in ("", "ai.onnx") or node.op_type in _NOT_CONSTANT:
        return False
    return not any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)


def _all_inputs(node: onnx.NodeProto) -> set[str]:
    """Returns the inputs of a node, and whatever its sub-graphs read."""
    names = set(node.input)
    for attribute in node.attribute:
        for sub in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            names |= {o.name for o in sub.output}
            for inner in sub.node:
                names |= _all_inputs(inner)
    return names


def _compute(
    model: onnx.ModelProto, nodes: list[onnx.NodeProto], initializers: list[onnx.TensorProto], wanted: list[str]
) -> dict[str, np.ndarray]:
    read = {name for node in nodes for name in node.input}
    outputs = [onnx.ValueInfoProto(name=name) for name in wanted]
    part = onnx.helper.make_graph(nodes, "constants", [], outputs, [t for t in initializers if t.name in read])
    proto = onnx.helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # small constants only
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(wanted, session.run(wanted, {}), strict=True))
