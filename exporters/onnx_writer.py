"""Writes and reads `.onnx` files without holding their weights in memory.

A model in flight is a *skeleton* (a ModelProto without its large initializers) and a list of `Weight`s, each of which
knows how to write itself. Two forms come out of it: a single file, or a graph with its weights in one data file
beside it. Both are read by onnx, ONNX Runtime and protobuf readers of other languages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO, Literal

import onnx
from onnx.external_data_helper import load_external_data_for_tensor

from onnxport.exporters.errors import VariantError
from onnxport.verify.model_file import read_model, to_varint

ExternalData = Literal["auto", "always", "never"]

SINGLE_FILE_LIMIT_BYTES = 2**31 - 1
"""What protobuf can parse."""
AUTO_LIMIT_BYTES = 2**30
"""From this size on, "auto" puts the weights into a file of their own."""

_PAGE_BYTES = 4096
_LINE_BYTES = 64
_PAGED_FROM_BYTES = 2**20
_CHUNK_BYTES = 2**20

# Wire tags, (field << 3) | 2: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data.
_TAG_GRAPH = b"\x3a"
_TAG_INITIALIZER = b"\x2a"
_TAG_RAW_DATA = b"\x4a"


@dataclass(frozen=True)
class Weight:
    """One large initializer that is not in memory until it is written.

    `data_type` is a TensorProto enum; `write` writes exactly `size_bytes`, little-endian, in C order.
    """

    name: str
    data_type: int
    shape: tuple[int, ...]
    size_bytes: int
    write: Callable[[BinaryIO], None]

    def header(self) -> onnx.TensorProto:
        """Returns the initializer without its data."""
        return onnx.TensorProto(name=self.name, data_type=self.data_type, dims=self.shape)


def write_model(
    skeleton: onnx.ModelProto, weights: Sequence[Weight], path: Path, *, external_data: ExternalData = "auto"
) -> Path | None:
    """Writes the skeleton and its weights to `path`; memory does not grow with the weights.

    The files appear under their names when they are complete, so a weight may stream from the file that is replaced.
    The same input gives the same bytes.

    Args:
        skeleton: the model; initializers in it stay inline (`split_large` takes the large ones out).
        weights: initializers of the main graph, in the order in which they are stored.
        path: the `.onnx` file.
        external_data: "always" puts the weights into `<path.name>_data`, "never" keeps one file, "auto" keeps one
            file below 1 GiB.

    Returns:
        The data file, or None when there is a single file.

    Raises:
        VariantError: "never" was asked and the file would pass 2 GiB; or a weight wrote another number of bytes than
            it declared.
        OSError: the file system refused (disk full, no permission).
    """
    head = onnx.ModelProto()
    head.CopyFrom(skeleton)
    head.ClearField("graph")
    graph = skeleton.graph.SerializeToString(deterministic=True)
    envelopes = [_envelope(weight) for weight in weights]
    graph_bytes = len(graph) + sum(len(e) + w.size_bytes for e, w in zip(envelopes, weights, strict=True))

    if external_data == "never" and graph_bytes > SINGLE_FILE_LIMIT_BYTES:
        raise VariantError(
            f"{path.name} would be {graph_bytes} bytes in one file; protobuf reads up to {SINGLE_FILE_LIMIT_BYTES}. "
            'Use external_data "auto" or "always".'
        )
    head_bytes = head.SerializeToString(deterministic=True)
    if weights and (external_data == "always" or (external_data == "auto" and graph_bytes >= AUTO_LIMIT_BYTES)):
        return _write_with_data_file(head_bytes, skeleton.graph, weights, path)

    def chunks() -> Iterator[bytes | Weight]:
        yield from (head_bytes, _TAG_GRAPH, to_varint(graph_bytes), graph)
        for envelope, weight in zip(envelopes, weights, strict=True):
            yield envelope
            yield weight

    _write_whole(path, chunks())
    return None


def data_file(path: Path) -> Path:
    """Returns where the external weights of the graph at `path` lie: `<name>_data` beside it."""
    return path.with_name(f"{path.name}_data")


def write_reference(model: Path, path: Path) -> None:
    """Writes the graph of `model` to `path`, its weights staying where they are: no byte of them is copied.

    Args:
        model: an `.onnx` file, single or with a data file, in the folder of `path` or below it.
        path: the graph to write; it is good as long as `model` is where it is.

    Raises:
        ModelFileError: `model` is no ONNX file.
    """
    file = read_model(model)
    for tensor in file.proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = (model.parent / entry.value).relative_to(path.parent).as_posix()
        elif tensor.name in file.skipped:
            data = file.skipped[tensor.name]
            _refer(tensor, model.relative_to(path.parent).as_posix(), data.offset_bytes, data.size_bytes)
    _write_whole(path, [file.proto.SerializeToString(deterministic=True)])


def read_skeleton(path: Path) -> tuple[onnx.ModelProto, list[Weight]]:
    """Reads a model without its external weights.

    Every external initializer of the main graph leaves the skeleton and becomes a `Weight` that copies its range of
    the file. External tensors elsewhere (sub-graphs, attributes) are read into the skeleton. Inline initializers stay.

    Raises:
        VariantError: the file is no ONNX model, or its external data is missing, too short or outside its folder.
        OSError: the file cannot be read.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError:
        raise
    except Exception as e:  # protobuf raises its DecodeError
        raise VariantError(f"{path} is not an ONNX model ({e}); give the path of a complete .onnx file.") from e
    weights: list[Weight] = []
    inline: list[onnx.TensorProto] = []
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            weights.append(_external_weight(tensor, path))
        else:
            inline.append(tensor)
    _keep_initializers(model.graph, inline)
    _load_nested(model.graph, path)
    return model, weights


def read_streamed(path: Path) -> tuple[onnx.ModelProto, list[Weight]]:
    """Reads a model without its weights, wherever they lie: large inline ones stay in the file as well.

    As `read_skeleton`, but every initializer of the main graph from 1 KiB on becomes a `Weight` that copies its range
    of a file; `path` must be what it is until they are written.

    Raises:
        VariantError, ModelFileError: as `read_skeleton` and `read_model`.
    """
    file = read_model(path)
    weights: list[Weight] = []
    inline: list[onnx.TensorProto] = []
    for tensor in file.proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            weights.append(_external_weight(tensor, path))
        elif tensor.name in file.skipped:
            data = file.skipped[tensor.name]
            source = _FileRange(path, data.offset_bytes, data.size_bytes)
            weights.append(Weight(tensor.name, tensor.data_type, tuple(tensor.dims), data.size_bytes, source))
        else:
            inline.append(tensor)
    _keep_initializers(file.proto.graph, inline)
    _load_nested(file.proto.graph, path)
    return file.proto, weights


def split_large(proto: onnx.ModelProto, min_size_bytes: int = 1024) -> list[Weight]:
    """Takes the inline initializers of at least `min_size_bytes` out of `proto` and returns them as weights.

    Initializers whose data is not in `raw_data` stay.
    """
    weights: list[Weight] = []
    inline: list[onnx.TensorProto] = []
    for tensor in proto.graph.initializer:
        size_bytes = len(tensor.raw_data)
        if size_bytes and size_bytes >= min_size_bytes:
            weights.append(Weight(tensor.name, tensor.data_type, tuple(tensor.dims), size_bytes, _InlineData(tensor)))
        else:
            inline.append(tensor)
    _keep_initializers(proto.graph, inline)
    return weights


@dataclass(frozen=True)
class _InlineData:
    tensor: onnx.TensorProto

    def __call__(self, file: BinaryIO) -> None:
        file.write(self.tensor.raw_data)


@dataclass(frozen=True)
class _FileRange:
    path: Path
    offset: int
    size_bytes: int

    def __call__(self, file: BinaryIO) -> None:
        left = self.size_bytes
        buffer = memoryview(bytearray(min(_CHUNK_BYTES, left)))
        with self.path.open("rb", buffering=0) as source:
            source.seek(self.offset)
            while left:
                count = source.readinto(buffer[: min(left, len(buffer))])
                if not count:
                    raise VariantError(f"{self.path} became shorter while it was read; run the export again.")
                file.write(buffer[:count])
                left -= count


def _write_with_data_file(head: bytes, graph: onnx.GraphProto, weights: Sequence[Weight], path: Path) -> Path:
    target = data_file(path)
    headers: list[onnx.TensorProto] = []
    chunks: list[bytes | Weight] = []
    offset = 0
    for weight in weights:
        padding = -offset % (_PAGE_BYTES if weight.size_bytes >= _PAGED_FROM_BYTES else _LINE_BYTES)
        chunks += (bytes(padding), weight)
        offset += padding
        header = weight.header()
        _refer(header, target.name, offset, weight.size_bytes)
        headers.append(header)
        offset += weight.size_bytes
    _write_whole(target, chunks)

    whole = onnx.GraphProto()
    whole.CopyFrom(graph)
    whole.initializer.extend(headers)
    graph_bytes = whole.SerializeToString(deterministic=True)
    _write_whole(path, (head, _TAG_GRAPH, to_varint(len(graph_bytes)), graph_bytes))
    return target


def _refer(tensor: onnx.TensorProto, location: str, offset: int, size_bytes: int) -> None:
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(size_bytes))):
        tensor.external_data.add(key=key, value=value)


def _write_whole(path: Path, chunks: Iterable[bytes | Weight]) -> None:
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            for chunk in chunks:
                if isinstance(chunk, Weight):
                    start = file.tell()
                    chunk.write(file)
                    written = file.tell() - start
                    if written != chunk.size_bytes:
                        raise VariantError(
                            f"weight {chunk.name} wrote {written} bytes, declared {chunk.size_bytes} "
                            f"(shape {chunk.shape}); the file would be corrupt. Declare the size of what is written."
                        )
                else:
                    file.write(chunk)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _envelope(weight: Weight) -> bytes:
    """Returns what comes before the data of a weight in a single file: the initializer's tag, length and header."""
    header: bytes = weight.header().SerializeToString(deterministic=True)
    raw = _TAG_RAW_DATA + to_varint(weight.size_bytes)
    return _TAG_INITIALIZER + to_varint(len(header) + len(raw) + weight.size_bytes) + header + raw


def _keep_initializers(graph: onnx.GraphProto, kept: list[onnx.TensorProto]) -> None:
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _tensors_of_nodes(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yields every tensor below the nodes of a graph: attributes and the initializers of sub-graphs."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for sub in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from sub.initializer
                yield from _tensors_of_nodes(sub)


def _load_nested(graph: onnx.GraphProto, path: Path) -> None:
    """Reads the external tensors below the nodes of a graph into it."""
    for tensor in _tensors_of_nodes(graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _locate(tensor, path)
            load_external_data_for_tensor(tensor, str(path.parent))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]


def _external_weight(tensor: onnx.TensorProto, path: Path) -> Weight:
    source = _locate(tensor, path)
    return Weight(tensor.name, tensor.data_type, tuple(tensor.dims), source.size_bytes, source)


def _locate(tensor: onnx.TensorProto, path: Path) -> _FileRange:
    """Returns the range of the file that holds an external tensor, after checking that it is there."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    posix = PurePosixPath(location)
    if not location or posix.is_absolute() or PureWindowsPath(location).is_absolute() or ".." in posix.parts:
        raise VariantError(
            f"{path.name}: initializer {tensor.name} has its data at {location!r}, which is not inside the folder of "
            "the graph. Put the data file beside the graph and save the graph again."
        )
    file = path.parent / posix
    if not file.is_file():
        raise VariantError(f"{path.name}: the weights file {location} is missing; copy it beside the graph.")
    offset = int(entries.get("offset", "0"))
    available = file.stat().st_size - offset
    length = int(entries.get("length", available))
    if not 0 <= length <= available or offset < 0:
        raise VariantError(
            f"{path.name}: initializer {tensor.name} needs bytes {offset} to {offset + length} of {location}, which "
            f"has {file.stat().st_size}. The weights file is incomplete or of another graph: copy it again."
        )
    return _FileRange(file, offset, length)
