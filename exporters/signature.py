"""What the graph must promise: inputs from the exportable, output axes found by running the PyTorch model.

An output dimension is given the name of an axis when, at every size tried, it equals the size of that axis and of no
other. A dimension that changes but equals no axis (the length after a strided convolution) is named after the output
and its position, "logits_1"; a dimension that never changes is fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from onnxport.exporters.errors import SignatureError
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.verify.contract import Dim, GraphContract, TensorSpec


def probe_contract(exportable: Exportable, opset: int) -> GraphContract:
    """Runs the module at several sizes and returns the contract its graph will be held to.

    Raises:
        SignatureError: the module cannot run on its own inputs, or an output changes its rank or dtype with the size.
    """
    sizes = dict(exportable.example)
    runs = [(sizes, _run(exportable, sizes))]
    varied = []
    for axis, allowed in exportable.axes.items():
        at = {**sizes, axis: sizes[axis] + _step(sizes, axis)}
        try:
            runs.append((at, _run(exportable, at)))
        except SignatureError:
            # A fixed axis is varied too, to learn which output dimensions follow it; the model need not allow that.
            if allowed.fixed is None:
                raise
        else:
            varied.append(axis)
    first = runs[0][1]
    outputs = []
    for name, tensor in first.items():
        shapes = [(at, tuple(run[name].shape)) for at, run in runs if name in run]
        if len(shapes) < len(runs) or any(len(shape) != tensor.ndim for _, shape in shapes):
            raise SignatureError(
                f"output {name!r} is not there, or has another rank, at other sizes: ONNX needs one signature"
            )
        dims = tuple(_dim(name, i, shapes, varied) for i in range(tensor.ndim))
        outputs.append(TensorSpec(name=name, dtype=numpy_name(tensor.dtype), shape=dims))
    sample = exportable.sample(sizes, np.random.default_rng(0))
    inputs = tuple(
        TensorSpec(name=name, dtype=str(sample[name].dtype), shape=dims) for name, dims in exportable.inputs.items()
    )
    return GraphContract(
        inputs=inputs,
        outputs=tuple(outputs),
        axes=dict(exportable.axes),
        opsets={"": opset},
        vocabularies=dict(exportable.vocabularies),
    )


def numpy_name(dtype: torch.dtype) -> str:
    """numpy's name of a torch dtype: torch.float32 -> "float32"."""
    return str(dtype).removeprefix("torch.")


def _step(sizes: Mapping[str, int], axis: str) -> int:
    """How much to grow an axis so that its new size is that of no other axis."""
    step = 3
    while sizes[axis] + step in sizes.values():
        step += 1
    return step


def _run(exportable: Exportable, sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
    inputs = exportable.sample(sizes, np.random.default_rng(0))
    try:
        with torch.inference_mode():
            return exportable.run(to_tensors(inputs))
    except SignatureError:
        raise
    except Exception as e:
        shown = {name: list(array.shape) for name, array in inputs.items()}
        raise SignatureError(
            f"{exportable.source.architecture} itself fails on inputs of shape {shown}: {type(e).__name__}: {e}; check "
            "the axes, or fix an axis with --static"
        ) from e


def _dim(
    output: str, position: int, shapes: Sequence[tuple[Mapping[str, int], tuple[int, ...]]], axes: list[str]
) -> Dim:
    seen = [shape[position] for _, shape in shapes]
    if len(set(seen)) == 1:
        return seen[0]
    for axis in axes:
        if all(at[axis] == size for (at, _), size in zip(shapes, seen, strict=True)):
            return axis
    return f"{output}_{position}"
