"""One graph of two: an `If` whose branches are the graphs, with every large weight that both have stored once.

The branches read inputs and weights from the graph around them. Their small constants stay inside: shapes are inferred
from these, and ONNX Runtime looks for them there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import onnx
from onnx import helper

from onnxport.exporters.choice import Choice
from onnxport.exporters.engines.agreement import value_info
from onnxport.exporters.errors import VariantError
from onnxport.exporters.graph import TracedModel
from onnxport.exporters.onnx_writer import Weight, read_streamed
from onnxport.verify.contract import GraphContract

_TRUE, _FALSE = "if_true/", "if_false/"
"""What the names of values and nodes begin with inside a branch: a name may stand for one value only."""


@dataclass(frozen=True)
class ChoiceGraph:
    """The graph, and the number of weights that both branches read."""

    traced: TracedModel
    shared: int


def choice_graph(choice: Choice, if_true: Path, if_false: Path, contract: GraphContract) -> ChoiceGraph:
    """Returns the graph that runs one of two others, whose weights stay in their files until they are written.

    Args:
        choice: which input chooses, and what is passed through.
        if_true, if_false: the graphs of the parts, in the same form.
        contract: of the result.

    Raises:
        VariantError: the graphs import different versions of a domain, or lack an output.
        ModelFileError: one is not an ONNX model.
    """
    contract = contract.written()
    store = _Store({spec.name for spec in contract.inputs})
    models, branches, read = [], {}, []
    # The one with more of the weights first: names are its own where both have a weight.
    for prefix, path, passed in ((_FALSE, if_false, {}), (_TRUE, if_true, choice.passed)):
        model, weights = read_streamed(path)
        names = {weight.name: store.put(weight, prefix) for weight in weights}
        read.append(set(names.values()))
        branches[prefix] = _branch(model.graph, prefix, names, contract, passed, path)
        models.append(model)
    node = helper.make_node(
        "If",
        [choice.condition],
        [spec.name for spec in contract.outputs],
        name=choice.condition,
        then_branch=branches[_TRUE],
        else_branch=branches[_FALSE],
    )
    graph = helper.make_graph(
        [node],
        "main_graph",
        [value_info(spec) for spec in contract.inputs],
        [value_info(spec) for spec in contract.outputs],
    )
    merged = helper.make_model(
        graph, producer_name=models[0].producer_name, ir_version=max(m.ir_version for m in models)
    )
    merged.producer_version = models[0].producer_version
    del merged.opset_import[:]
    merged.opset_import.extend(helper.make_opsetid(*entry) for entry in _imports(models).items())
    merged.functions.extend(_functions(models))
    return ChoiceGraph(TracedModel(merged, list(store.weights.values())), len(read[0] & read[1]))


@dataclass
class _Store:
    """Weights of the outer graph by name: one for all that have the same type, shape and bytes."""

    taken: set[str]
    weights: dict[str, Weight] = field(default_factory=dict)
    names: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def put(self, weight: Weight, prefix: str) -> str:
        """Returns the name that the weight has in the outer graph."""
        key = (weight.data_type, weight.shape, _sha256(weight))
        if key not in self.names:
            name = weight.name if weight.name not in self.taken else prefix + weight.name
            self.taken.add(name)
            self.names[key] = name
            self.weights[name] = Weight(name, weight.data_type, weight.shape, weight.size_bytes, weight.write)
        return self.names[key]


class _Hashing:
    """A file to a weight that writes itself: nothing is kept but the hash."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return len(data)


def _sha256(weight: Weight) -> bytes:
    sink = _Hashing()
    weight.write(cast(BinaryIO, sink))
    return sink.sha256.digest()


def _branch(
    graph: onnx.GraphProto,
    prefix: str,
    weights: Mapping[str, str],
    contract: GraphContract,
    passed: Mapping[str, str],
    path: Path,
) -> onnx.GraphProto:
    """Returns the graph as a branch: without inputs, names of its own, and all outputs of the contract in order."""
    read = {value.name for value in graph.input}

    def rename(name: str) -> str:
        return name if not name or name in read else weights.get(name, prefix + name)

    branch = onnx.GraphProto()
    branch.CopyFrom(graph)
    branch.name = prefix.rstrip("/")
    own = {value.name: value for value in graph.output}
    inputs = {spec.name: spec for spec in contract.inputs}
    for repeated in (branch.input, branch.output, branch.value_info, branch.quantization_annotation):
        del repeated[:]
    _rename(branch, rename, prefix)
    produced = {name for node in branch.node for name in node.output}
    for spec in contract.outputs:
        name = prefix + spec.name
        if spec.name not in own and spec.name not in passed:
            raise VariantError(f"{path.name} has no output {spec.name}; it returns {', '.join(own)}")
        source = rename(spec.name) if spec.name in own else passed[spec.name]
        if name not in produced:  # a branch has to make what it returns
            branch.node.append(helper.make_node("Identity", [source], [name], name=name))
        # The type that it has in this branch: lengths may be others in the other one.
        typed = own[spec.name] if spec.name in own else value_info(inputs[source])
        typed.name = name
        branch.output.append(typed)
    return branch


def _rename(graph: onnx.GraphProto, rename: Callable[[str], str], prefix: str) -> None:
    """Renames every value that is made in a graph or below it, and what reads it."""
    for tensor in graph.initializer:
        tensor.name = rename(tensor.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = rename(sparse.values.name)
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.name = rename(value.name)
    for node in graph.node:
        node.name = node.name and prefix + node.name
        node.input[:] = [rename(name) for name in node.input]
        node.output[:] = [rename(name) for name in node.output]
        for attribute in node.attribute:
            for sub in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                _rename(sub, rename, prefix)


def _imports(models: list[onnx.ModelProto]) -> dict[str, int]:
    imports: dict[str, int] = {}
    for model in models:
        for entry in model.opset_import:
            if imports.setdefault(entry.domain, entry.version) != entry.version:
                raise VariantError(
                    f"the two graphs import versions {imports[entry.domain]} and {entry.version} of the domain "
                    f"{entry.domain or 'ai.onnx'}, and one graph can import only one: export both with one engine"
                )
    return dict(sorted(imports.items()))


def _functions(models: list[onnx.ModelProto]) -> list[onnx.FunctionProto]:
    functions: dict[tuple[str, str, str], onnx.FunctionProto] = {}
    for function in (function for model in models for function in model.functions):
        key = (function.domain, function.name, function.overload)
        if functions.setdefault(key, function) != function:
            raise VariantError(f"the two graphs have different functions {function.domain}:{function.name}")
    return list(functions.values())
