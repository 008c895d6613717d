"""Reads an ONNX file without its weights, whether they lie in another file or in this one.

Protobuf would read a single-file model whole, gigabytes for a few kilobytes of graph. Here the file is mapped into
memory and only what is not weights is handed to protobuf: of the main graph's initializers everything but `raw_data`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from onnxport.verify.errors import ModelFileError
from onnxport.verify.runners import one_line

_ADVICE = "Give the path of a complete .onnx file."
_SKIPPED_FROM_BYTES = 1024

# Field numbers of ModelProto, GraphProto and TensorProto, and the wire type of what has a length.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_WITH_LENGTH = 2


@dataclass(frozen=True)
class DataRange:
    """A stretch of a file."""

    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class ModelFile:
    """A model in memory without its weights.

    `skipped` names the initializers whose data stayed in the file, and where it lies there; in `proto` they have name,
    type and shape.
    """

    proto: onnx.ModelProto
    skipped: Mapping[str, DataRange]


def read_model(path: Path) -> ModelFile:
    """Reads a file without external data and without large weights.

    Raises:
        ModelFileError: the file is missing, or is not an ONNX model (another format, truncated, empty).
    """
    skipped: dict[str, DataRange] = {}
    try:
        with path.open("rb") as file:
            if not path.stat().st_size:
                raise ModelFileError(f"{path} is empty. {_ADVICE}")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                if data[4:8] == b"ORTM":
                    raise ModelFileError(
                        f"{path} is in ONNX Runtime's own .ort format, which only ONNX Runtime reads. {_ADVICE}"
                    )
                proto: onnx.ModelProto = onnx.ModelProto.FromString(_without_weights(data, skipped))
    except OSError as e:
        raise ModelFileError(f"{path} cannot be read: {e.strerror or e}. {_ADVICE}") from e
    except (DecodeError, _Malformed) as e:
        raise ModelFileError(f"{path} is not an ONNX model, or is truncated: {one_line(e)}. {_ADVICE}") from e
    # Protobuf reads much that is no model without complaint: a model has these.
    if proto.ir_version < 1 or not proto.opset_import or not (proto.graph.node or proto.graph.output):
        raise ModelFileError(
            f"{path} is not a whole ONNX model: it has IR version {proto.ir_version}, {len(proto.opset_import)} opset "
            f"imports, {len(proto.graph.node)} nodes and {len(proto.graph.output)} outputs. {_ADVICE}"
        )
    return ModelFile(proto, skipped)


def to_varint(value: int) -> bytes:
    """Returns the wire form of a number that is not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Malformed(Exception):
    pass


def _without_weights(data: mmap.mmap, skipped: dict[str, DataRange]) -> bytes:
    parts: list[bytes] = []
    for field, start, body, end in _fields(data, 0, len(data)):
        parts.append(_message(_GRAPH, _light_graph(data, body, end, skipped)) if field == _GRAPH else data[start:end])
    return b"".join(parts)


def _light_graph(data: mmap.mmap, start: int, end: int, skipped: dict[str, DataRange]) -> bytes:
    parts: list[bytes] = []
    for field, begin, body, stop in _fields(data, start, end):
        if field == _INITIALIZER and stop - body >= _SKIPPED_FROM_BYTES:
            parts.append(_message(_INITIALIZER, _light_tensor(data, body, stop, skipped)))
        else:
            parts.append(data[begin:stop])
    return b"".join(parts)


def _light_tensor(data: mmap.mmap, start: int, end: int, skipped: dict[str, DataRange]) -> bytes:
    parts: list[bytes] = []
    left_out = None
    for field, begin, body, stop in _fields(data, start, end):
        if field == _RAW_DATA and stop - body >= _SKIPPED_FROM_BYTES:
            left_out = DataRange(body, stop - body)
        else:
            parts.append(data[begin:stop])
    light = b"".join(parts)
    if left_out is not None:
        skipped[onnx.TensorProto.FromString(light).name] = left_out
    return light


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields (number, start, start of the body, end) of each field of a message; a field without length has no body."""
    position = start
    while position < end:
        begin = position
        tag, position = _varint(data, position, end)
        kind = tag & 7
        body = position
        if kind == 0:
            _, position = _varint(data, position, end)
        elif kind == 1:
            position += 8
        elif kind == _WITH_LENGTH:
            length, body = _varint(data, position, end)
            position = body + length
        elif kind == 5:
            position += 4
        else:
            raise _Malformed(f"wire type {kind} at byte {begin}")
        if position > end:
            raise _Malformed(f"a field at byte {begin} goes on to byte {position}, past {end}")
        yield tag >> 3 if kind == _WITH_LENGTH else 0, begin, body, position


def _varint(data: mmap.mmap, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise _Malformed(f"a number without an end at byte {position}")


def _message(field: int, body: bytes) -> bytes:
    """The wire form of a message as a field of another."""
    return bytes([field << 3 | _WITH_LENGTH]) + to_varint(len(body)) + body
