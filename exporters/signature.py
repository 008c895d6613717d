"""What the graph must promise: inputs from the exportable, output axes found by running the PyTorch model.

An output dimension is given the name of an axis when, at every size tried, it equals the size of that axis and of no
other; or of a sum of axes that an input has ("past_sequence+sequence"), or of any two axes. A dimension that changes
but equals none of these (the length after a strided convolution) is named after the output and its position,
"logits_1"; a dimension that never changes is fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import torch

from onnxport.exporters.errors import SignatureError
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.exporters.own_failure import own_failure
from onnxport.verify.cases import Case, axis_sizes
from onnxport.verify.contract import AxisRange, Dim, GraphContract, TensorSpec, addends, size_of
from onnxport.verify.tolerance import FLOAT16, FLOAT32


def probe_contract(exportable: Exportable, opset: int, *, fixable: bool = True) -> GraphContract:
    """Runs the module at several sizes and returns the contract its graph will be held to.

    Args:
        fixable: whether who asks can fix an axis (--static of an export), and so is told to where the module fails.

    Raises:
        SignatureError: the module cannot run on its own inputs, is not deterministic, changes itself when it runs, or
            has outputs that no graph can have: none at all, of a dtype that ONNX lacks, of another rank at other sizes,
            named like an input.
    """
    modes = _modes(exportable)
    sizes = dict(exportable.example)
    runs = [(sizes, _run(exportable, sizes, fixable=fixable))]
    _require_determinism(exportable, runs[0][1])
    varied = []
    for axis, allowed in exportable.axes.items():
        run = _run_at_another(exportable, sizes, axis, allowed, fixable=fixable)
        if run is not None:
            runs.append(run)
            varied.append(axis)
    _require_same_modes(exportable, modes, fixable=fixable)
    sums = {dim for dims in exportable.inputs.values() for dim in dims if len(addends(dim)) > 1}
    known = [*varied, *sorted(str(dim) for dim in sums if set(addends(dim)) <= {*exportable.axes})]
    known += [pair for pair in map("+".join, combinations(varied, 2)) if pair not in sums]  # what is put together
    first = runs[0][1]
    if others := sorted({name for _, run in runs for name in run} - set(first)):
        raise SignatureError(f"output {others[0]!r} is there at some sizes only: ONNX needs one signature")
    outputs = []
    for name, tensor in first.items():
        shapes = [(at, tuple(run[name].shape)) for at, run in runs if name in run]
        if len(shapes) < len(runs) or any(len(shape) != tensor.ndim for _, shape in shapes):
            raise SignatureError(
                f"output {name!r} is not there, or has another rank, at other sizes: ONNX needs one signature"
            )
        if name in exportable.inputs:
            raise SignatureError(
                f"output {name!r} has the name of an input; a graph needs names of their own: rename it"
            )
        dims = tuple(_dim(name, i, shapes, known) for i in range(tensor.ndim))
        outputs.append(TensorSpec(name=name, dtype=numpy_name(tensor.dtype, name), shape=dims))
    if not outputs:
        raise SignatureError(f"{exportable.source.architecture} returns no tensors: there is nothing to export")
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


def require_conformity(contract: GraphContract, case: Case, outputs: Mapping[str, np.ndarray]) -> None:
    """The outputs of a case have the shapes that the contract promises: they were probed at few sizes.

    Raises:
        SignatureError: a dimension that was taken to be fixed, or to be an axis, is not; an output is missing, or has
            another rank.
    """
    sizes = axis_sizes(case, contract)
    for spec in contract.outputs:
        seen = outputs.get(spec.name)
        if seen is None or seen.ndim != len(spec.shape):
            told = "is not there" if seen is None else f"has the shape {list(seen.shape)}"
            raise SignatureError(
                f"output {spec.name!r} {told} in case {case.name}, and had {len(spec.shape)} dimensions at the sizes "
                "that were tried: ONNX needs one signature; keep all dimensions in forward (squeeze drops those of "
                "size 1)"
            )
        for position, (dim, size) in enumerate(zip(spec.shape, seen.shape, strict=True)):
            known = all(isinstance(part, int) or part in sizes for part in addends(dim))
            if known and size_of(dim, sizes) != size:
                given = {name: list(array.shape) for name, array in case.inputs.items()}
                raise SignatureError(
                    f"dimension {position} of output {spec.name!r} was {dim} at the sizes that were tried, and is "
                    f"{size} for inputs of shape {given} (case {case.name}): it depends on what no shape tells; fix "
                    "the axes that it depends on with --static"
                )


def numpy_name(dtype: torch.dtype, output: str) -> str:
    """numpy's name of the dtype of an output: torch.float32 -> "float32".

    Raises:
        SignatureError: numpy or ONNX Runtime has no such type.
    """
    name = str(dtype).removeprefix("torch.")
    if dtype.is_complex or not hasattr(np, name):
        raise SignatureError(f"output {output!r} is {name}, which a graph cannot return to numpy; cast it in forward")
    return name


def _run_at_another(
    exportable: Exportable, sizes: Mapping[str, int], axis: str, allowed: AxisRange, *, fixable: bool
) -> tuple[dict[str, int], dict[str, torch.Tensor]] | None:
    """Returns other sizes and what the module gives there; None: the axis is fixed, and the model fails at others.

    Raises:
        SignatureError: the module fails at every size but one of an axis that is not fixed.
    """
    failed = None
    for size in _other_sizes(sizes, axis, allowed):
        at = {**sizes, axis: size}
        try:
            return at, _run(exportable, at, fixable=fixable)
        except SignatureError as e:
            failed = e
    # A fixed axis is varied too, to learn which output dimensions follow it; the model need not allow that.
    if failed is not None and allowed.fixed is None:
        raise failed
    return None


def _other_sizes(sizes: Mapping[str, int], axis: str, allowed: AxisRange) -> list[int]:
    """Sizes to vary an axis to, the best first, none of them that of another axis.

    Far larger where the range allows it: behind strides, a few samples more give the same number of frames.
    """
    size = sizes[axis]
    largest = None if allowed.fixed is not None else allowed.max
    steps = (
        range(2 * size + 1, 2 * size + 2 + len(sizes)),
        range(size + 3, size + 4 + len(sizes)),
        range(size - 1, 0, -1),
    )
    fitting = ([n for n in step if n not in sizes.values() and (largest is None or n <= largest)] for step in steps)
    return [found[0] for found in fitting if found] or [size]


def _require_determinism(exportable: Exportable, first: Mapping[str, torch.Tensor]) -> None:
    """Two runs on the same inputs must agree: nothing can be compared with a model that draws at random."""
    second = _run(exportable, exportable.example, fixable=True)  # it has run on these before
    for name, tensor in first.items():
        once, again = (np.asarray(t.detach().to(torch.float64)) for t in (tensor, second[name]))
        rounding = FLOAT16 if tensor.dtype == torch.float16 else FLOAT32
        if not np.allclose(once, again, rtol=rounding.rtol, atol=rounding.atol, equal_nan=True):
            raise SignatureError(
                f"{exportable.source.architecture} returns another {name!r} when it runs again on the same inputs; "
                "remove what is random from forward, or make it an input"
            )


def _modes(exportable: Exportable) -> dict[tuple[str, str], str]:
    """The attributes of all modules that are words, such as BigBird's `attention_type`."""
    return {
        (name, key): value
        for name, module in exportable.module.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, str)
    }


def _require_same_modes(exportable: Exportable, before: Mapping[tuple[str, str], str], *, fixable: bool) -> None:
    """A module that switches itself to another algorithm answers by what it was asked before; no graph does."""
    rows = {dims[0] for dims in exportable.inputs.values() if dims}
    axes = [f"--static {name}=N" for name in exportable.axes if fixable and name not in rows]
    for (name, key), value in _modes(exportable).items():
        if before.get((name, key), value) != value:
            was = before[name, key]
            longer = f", or keep {was!r} by a length at which it never switches ({' '.join(axes)})" if axes else ""
            raise SignatureError(
                f"{exportable.source.architecture} changes itself when it runs: {key} of {name or 'the module'} was "
                f"{was!r} and is {value!r} after short inputs, so that its answers depend on what it was asked before; "
                f"fix the mode in config.json ({key}: {value!r}){longer}"
            )


def _run(exportable: Exportable, sizes: Mapping[str, int], *, fixable: bool) -> dict[str, torch.Tensor]:
    inputs = exportable.sample(sizes, np.random.default_rng(0))
    shown = {name: list(array.shape) for name, array in inputs.items()}
    told = f"{exportable.source.architecture} itself fails on inputs of shape {shown}"
    with own_failure(told, "; check the axes, or fix an axis with --static" if fixable else ""):
        returned = exportable.call(to_tensors(inputs))
    return exportable.named(returned)


def _dim(
    output: str, position: int, shapes: Sequence[tuple[Mapping[str, int], tuple[int, ...]]], known: Sequence[str]
) -> Dim:
    seen = [shape[position] for _, shape in shapes]
    if len(set(seen)) == 1:
        return seen[0]
    for dim in known:
        if all(size_of(dim, at) == size for (at, _), size in zip(shapes, seen, strict=True)):
            return dim
    return f"{output}_{position}"
