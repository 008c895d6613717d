"""A work copy of a graph with its largest weight changed: a fault that any comparison worth its name must see.

The bytes are changed in place, in the copy and block by block: no weight comes into memory as a whole.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx

from onnxport.verify.errors import VerificationError
from onnxport.verify.graph_facts import facts_of
from onnxport.verify.model_file import read_model

_DTYPES: dict[int, type[np.floating]] = {
    onnx.TensorProto.FLOAT: np.float32,
    onnx.TensorProto.FLOAT16: np.float16,
    onnx.TensorProto.DOUBLE: np.float64,
}
# In turn: a layer that normalises what it gets would undo one factor for all.
_FACTORS = (1.05, 0.95)
_BLOCK_ELEMENTS = 2**20


def copy_with_perturbed_weight(path: Path, folder: Path) -> tuple[Path, str] | None:
    """Copies a graph and its external data into `folder`, then multiplies its largest weight by 1.05 and 0.95 in turn.

    Weights are floating-point initializers of two dimensions or more that a node takes.

    Returns:
        The copy and the name of the weight; None: there is no weight, and nothing was copied.

    Raises:
        ModelFileError: the file is not an ONNX model.
        VerificationError: the copy cannot be written.
    """
    model = read_model(path)
    taken = {name for node in model.proto.graph.node for name in node.input}
    weights = [
        tensor
        for tensor in model.proto.graph.initializer
        if tensor.data_type in _DTYPES and len(tensor.dims) >= 2 and tensor.name in taken
    ]
    if not weights:
        return None
    weight = max(weights, key=lambda tensor: int(np.prod(tensor.dims)))
    dtype = np.dtype(_DTYPES[weight.data_type])
    external = facts_of(model.proto, path).external
    copy = folder / path.name
    try:
        for location in sorted({path.name, *(tensor.location for tensor in external)}):
            _copy(path.parent, location, folder)
        stored = next((tensor for tensor in external if tensor.name == weight.name), None)
        if weight.name in model.skipped:
            inside = model.skipped[weight.name]
            _perturb_file(copy, inside.offset_bytes, inside.size_bytes, dtype)
        elif stored is not None:
            _perturb_file(folder / stored.location, stored.offset_bytes, stored.needed_bytes, dtype)
        else:
            _perturb_inline(copy, weight.name)
    except OSError as e:
        raise VerificationError(
            f"A copy of {path.name} to work on cannot be written: {e.strerror or e}. Make room in the folder for "
            "temporary files, or name another one in TMPDIR."
        ) from e
    return copy, weight.name


def _copy(source: Path, location: str, folder: Path) -> None:
    target = folder / location
    if not target.resolve().is_relative_to(folder.resolve()):
        raise VerificationError(
            f"The external data {location!r} leads out of the folder of the graph, and a graph must bring its own. "
            "Export it again."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / location, target)


def _perturb_file(path: Path, offset_bytes: int, size_bytes: int, dtype: np.dtype) -> None:
    """A block has an even number of elements, so that the factors keep their turn from one to the next."""
    block_bytes = _BLOCK_ELEMENTS * dtype.itemsize
    with path.open("r+b") as file:
        for start in range(offset_bytes, offset_bytes + size_bytes, block_bytes):
            length = min(block_bytes, offset_bytes + size_bytes - start)
            file.seek(start)
            values = np.frombuffer(file.read(length), dtype=dtype.newbyteorder("<"))
            file.seek(start)
            file.write(_perturbed(values).tobytes())


def _perturb_inline(path: Path, name: str) -> None:
    """For a weight of a few bytes, kept in the proto itself: as the largest one, it makes the file a small one."""
    model = onnx.load(path, load_external_data=False)
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    values = onnx.numpy_helper.to_array(tensor)
    tensor.CopyFrom(onnx.numpy_helper.from_array(_perturbed(values.ravel()).reshape(values.shape), name))
    onnx.save(model, path)


def _perturbed(values: np.ndarray) -> np.ndarray:
    factors = np.resize(np.array(_FACTORS, dtype=values.dtype), values.shape)
    return np.asarray(values * factors, dtype=values.dtype)
