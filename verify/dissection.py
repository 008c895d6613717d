"""Takes a graph apart: looks at values inside it, gives it known ones in their place, cuts a piece of it free.

Weights stay in the file of the graph: sessions map them from there, and only a piece that is cut free gets its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.external_data_helper import load_external_data_for_tensor

from onnxport.verify.errors import SessionError
from onnxport.verify.model_file import read_model
from onnxport.verify.runners import CPU, make_session_options, one_line

Arrays = Mapping[str, np.ndarray]

_KNOWN = "known:"
_AT_ONCE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Segment:
    """What computes one value from known ones: its nodes in order, and the values that they read from outside.

    `inputs` are known values and inputs of the graph; weights are none.
    """

    value: str
    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]


class Dissection:
    """An ONNX file on the table.

    Args:
        path: the `.onnx` file; it stays as it is, and must stay where it is.

    Raises:
        ModelFileError: the file is missing, or is not an ONNX model.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        file = read_model(self.path)
        self._model = file.proto
        for tensor in self._model.graph.initializer:
            if tensor.name in file.skipped:
                data = file.skipped[tensor.name]
                tensor.data_location = onnx.TensorProto.EXTERNAL
                where = {"location": self.path.name, "offset": data.offset_bytes, "length": data.size_bytes}
                for key, value in where.items():
                    tensor.external_data.add(key=key, value=str(value))

    @property
    def nodes(self) -> Sequence[onnx.NodeProto]:
        """The nodes of the main graph, in the order in which they run."""
        nodes: Sequence[onnx.NodeProto] = self._model.graph.node
        return nodes

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs of the graph."""
        return tuple(value.name for value in self._model.graph.output)

    @cached_property
    def place(self) -> Mapping[str, int]:
        """Every value that a node computes, to the number of that node in `nodes`."""
        return {value: number for number, node in enumerate(self.nodes) for value in node.output if value}

    @cached_property
    def readers(self) -> Mapping[str, tuple[int, ...]]:
        """Every value that is read, to the numbers of the nodes that read it."""
        found: dict[str, list[int]] = {}
        for number, node in enumerate(self.nodes):
            for value in dict.fromkeys(reads(node)):
                found.setdefault(value, []).append(number)
        return {value: tuple(numbers) for value, numbers in found.items()}

    def segment(self, value: str, known: Collection[str], *, shapes: bool = True) -> Segment:
        """Returns what lies between a value and the nearest known ones; `value` itself does not count as known.

        `shapes` False: what only the shape is taken of does not belong to it.
        """
        weights = {tensor.name for tensor in self._model.graph.initializer}
        numbers: set[int] = set()
        inputs: dict[str, None] = {}
        pending = [value]
        while pending:
            current = pending.pop()
            if current in self.place and (current == value or current not in known):
                number = self.place[current]
                if number not in numbers:
                    numbers.add(number)
                    if shapes or self.nodes[number].op_type != "Shape":
                        pending += reads(self.nodes[number])
            elif current not in weights:
                inputs[current] = None
        return Segment(value, tuple(self.nodes[number] for number in sorted(numbers)), tuple(sorted(inputs)))

    def run(
        self,
        values: Sequence[str],
        inputs: Arrays,
        known: Arrays | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Runs the graph and yields the asked values in the order asked, a few in memory at a time.

        Args:
            values: any values that nodes compute.
            inputs: the inputs of the graph.
            known: values to read in place of what the graph computes for them, which it still computes.
            options: session options as in `OrtRunner`; None: every node as it stands in the file.

        Raises:
            SessionError: the graph does not load, or not run on these inputs, or computes something other than tensors.
        """
        known = known or {}
        session = _open(self._exposing(values, known), self.path, options)
        feeds = {**inputs, **{f"{_KNOWN}{name}": array for name, array in known.items()}}
        taken = {node.name for node in session.get_inputs()}
        feeds = {name: array for name, array in feeds.items() if name in taken}
        left = list(values)
        count = 1
        while left:
            now, left = left[:count], left[count:]
            arrays = _run(session, now, feeds, self.path.name)
            count = max(1, len(now) * _AT_ONCE_BYTES // max(1, sum(array.nbytes for array in arrays)))
            yield from zip(now, arrays, strict=True)

    def cut(self, segment: Segment, known: Arrays) -> onnx.ModelProto:
        """Returns the segment as a model of its own, with its weights; `known` has the type of each of its inputs.

        Raises:
            SessionError: the weights cannot be read.
        """
        needed = {name for node in segment.nodes for name in reads(node)}
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        graph = model.graph
        weights = [tensor for tensor in self._model.graph.initializer if tensor.name in needed]
        for field in ("node", "input", "output", "initializer", "sparse_initializer", "value_info"):
            graph.ClearField(field)
        graph.node.extend(segment.nodes)
        graph.initializer.extend(weights)
        graph.input.extend(_typed(name, known[name]) for name in segment.inputs)
        graph.output.append(onnx.ValueInfoProto(name=segment.value))
        try:
            for tensor in graph.initializer:
                if tensor.data_location == onnx.TensorProto.EXTERNAL:
                    load_external_data_for_tensor(tensor, str(self.path.parent))
                    tensor.data_location = onnx.TensorProto.DEFAULT
                    del tensor.external_data[:]
        except Exception as e:  # onnx raises OSError, ValueError or its own by what is wrong
            raise SessionError(f"weights of {self.path.name} cannot be read: {one_line(e)}. Copy it again.") from e
        return model

    def _exposing(self, values: Sequence[str], known: Arrays) -> bytes:
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        if known:
            _read_instead(model.graph.node, {name: f"{_KNOWN}{name}" for name in known})
            model.graph.input.extend(_typed(f"{_KNOWN}{name}", array) for name, array in known.items())
        typed = {value.name: value for value in model.graph.output}
        exposed = [typed.get(name, onnx.ValueInfoProto(name=name)) for name in values]
        kept = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in exposed]
        del model.graph.output[:]
        model.graph.output.extend(kept)
        data: bytes = model.SerializeToString()
        return data


def run_model(model: onnx.ModelProto, inputs: Arrays, options: Mapping[str, str] | None = None) -> list[np.ndarray]:
    """Runs a model that `Dissection.cut` returned.

    Raises:
        SessionError: it does not load or does not run.
    """
    session = _open(model.SerializeToString(), Path(), options)
    return _run(session, [output.name for output in session.get_outputs()], dict(inputs), "the cut graph")


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yields every value that a node reads from the graph it stands in, its sub-graphs included."""
    yield from (name for name in node.input if name)
    for graph in _subgraphs(node):
        own = {value.name for value in (*graph.input, *graph.initializer)}
        own |= {name for inner in graph.node for name in inner.output}
        yield from (name for inner in graph.node for name in reads(inner) if name not in own)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _read_instead(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    for node in nodes:
        for i, name in enumerate(node.input):
            node.input[i] = names.get(name, name)
        for graph in _subgraphs(node):
            _read_instead(graph.node, names)


def _typed(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    """Of any size: a piece that only ran at one would not show whether it runs at others."""
    element = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, element, [None] * array.ndim)


def _open(model: bytes, path: Path, options: Mapping[str, str] | None) -> Any:
    import onnxruntime

    chosen = make_session_options({"graph_optimization_level": "none"} if options is None else options)
    chosen.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
    try:
        return onnxruntime.InferenceSession(model, chosen, providers=[CPU], enable_fallback=0)
    except Exception as e:  # ONNX Runtime's exceptions share no base class
        raise SessionError(f"ONNX Runtime does not load {path.name or 'the cut graph'}: {one_line(e)}") from e


def _run(session: Any, values: list[str], feeds: Arrays, name: str) -> list[np.ndarray]:
    try:
        found = session.run(values, dict(feeds))
    except Exception as e:  # ONNX Runtime's exceptions share no base class
        raise SessionError(f"{name} failed on these inputs: {one_line(e)}") from e
    for value, array in zip(values, found, strict=True):
        if not isinstance(array, np.ndarray):
            raise SessionError(f"{name} computes a {type(array).__name__} for {value}, expected a tensor.")
    return list(found)
