"""Operators that TorchScript's exporter lacks, or translates wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.onnx import symbolic_helper, symbolic_opset9, symbolic_opset13
from torch.onnx.utils import register_custom_op_symbolic, unregister_custom_op_symbolic

from onnxport.exporters.errors import EngineError
from onnxport.verify.contract import GraphContract

Value = Any
"""A value of the graph that is being written, or None where the operator was called without it."""

_ANTIALIAS_SINCE = 18
"""The opset in which Resize got its antialiasing filter."""


@contextmanager
def more_operators(contract: GraphContract) -> Iterator[None]:
    """While it lasts, TorchScript's exporter translates the operators of this module as it says, for that graph."""
    # Where but the batch is fixed, a size that the trace saw is the size.
    one_size = all(isinstance(dim, int) for spec in contract.inputs for dim in spec.shape[1:])
    operators: dict[str, Callable[..., Value]] = {
        "aten::repeat_interleave": _repeat_interleave,
        "aten::expm1": _expm1,
        "aten::adaptive_avg_pool2d": partial(_adaptive_average, one_size=one_size),
        "aten::_upsample_bicubic2d_aa": partial(_resize, mode="cubic", one_size=one_size),
        "aten::_upsample_bilinear2d_aa": partial(_resize, mode="linear", one_size=one_size),
    }
    opset = contract.opsets[""]
    registered = []
    try:
        for name, symbolic in operators.items():
            register_custom_op_symbolic(name, symbolic, opset)
            registered.append(name)
        yield
    finally:
        for name in registered:
            unregister_custom_op_symbolic(name, opset)


def _repeat_interleave(g: Any, tensor: Value, repeats: Value, dim: Value = None, output_size: Value = None) -> Value:
    """As the exporter does it, with a constant of its own for the dimension.

    The exporter makes a negative dimension positive in place, in a constant that other operators read too: after
    `x.repeat_interleave(2, dim=-1)` on four axes, every other -1 of the model is a 3 (Cohere, GLM, Ernie 4.5).
    """
    given = None if dim is None else symbolic_helper._maybe_get_const(dim, "t")
    if isinstance(given, torch.Tensor):
        dim = g.op("Constant", value_t=given.clone())
    return symbolic_opset13.repeat_interleave(g, tensor, repeats, dim, output_size)


def _expm1(g: Any, tensor: Value) -> Value:
    """exp(x) - 1: near zero off by what 1 is rounded by, 6e-8 in float32, where torch keeps every digit."""
    return g.op("Sub", g.op("Exp", tensor), g.op("CastLike", g.op("Constant", value_t=torch.tensor(1.0)), tensor))


def _adaptive_average(g: Any, image: Value, output_size: Value, *, one_size: bool) -> Value:
    """Adaptive average pooling of [batch, channels, height, width], where the image has one size.

    The exporter needs a size that divides the image's, and loses sight of that (BEiT). Otherwise the windows are of
    different sizes and overlap (16 to 3, in the pyramid of UperNet): each is a row of a matrix.
    """
    wanted = symbolic_helper._maybe_get_const(output_size, "is")
    traced = symbolic_helper._get_tensor_sizes(g.original_node.inputsAt(0))
    known = one_size and isinstance(wanted, list) and traced is not None and len(traced) == 4 and None not in traced[2:]
    if not known or wanted == [1, 1]:
        theirs = symbolic_opset9.adaptive_avg_pool2d  # type: ignore[attr-defined]  # a decorator put it there
        return theirs(g, image, output_size)
    sizes = list(zip(traced[2:], wanted, strict=True))
    if all(old % new == 0 for old, new in sizes):
        windows = [old // new for old, new in sizes]
        return g.op("AveragePool", image, kernel_shape_i=windows, strides_i=windows)
    height, width = (_windows(old, new) for old, new in sizes)
    rows = g.op("MatMul", g.op("CastLike", g.op("Constant", value_t=height), image), image)
    return g.op("MatMul", rows, g.op("CastLike", g.op("Constant", value_t=width.T.contiguous()), image))


def _windows(old: int, new: int) -> torch.Tensor:
    """Returns the weights of every old position in every new one, float32 [new, old]; each row sums to 1."""
    positions, starts = torch.arange(old), torch.arange(new) * old // new
    ends = -(-(torch.arange(new) + 1) * old // new)  # rounded up
    inside = (positions >= starts[:, None]) & (positions < ends[:, None])
    return inside / inside.sum(dim=1, keepdim=True)


def _resize(
    g: Any, image: Value, size: Value, align_corners: Value, *scales: Value, mode: str, one_size: bool
) -> Value:
    """`interpolate(..., antialias=True)` of [batch, channels, height, width]: DINOv2 with registers and its positions.

    The filter matters only where an image gets smaller. Where it never does, Resize without it is the same, and older
    opsets have that.
    """
    opset = g.opset
    if size is None or any(scale is not None and not symbolic_helper._is_none(scale) for scale in scales):
        raise EngineError(
            "resizing with antialiasing by a scale: ONNX rounds the size otherwise; give interpolate a size instead of "
            "a scale_factor"
        )
    if opset < _ANTIALIAS_SINCE and not (one_size and _grows(g)):
        raise EngineError(
            f"where sizes are dynamic or get smaller, resizing with antialiasing needs opset {_ANTIALIAS_SINCE}, asked "
            f"{opset}; choose opset {_ANTIALIAS_SINCE} (--opset)"
        )
    corners = symbolic_helper._maybe_get_const(align_corners, "b")
    shape = g.op("Shape", image)
    kept = symbolic_helper._slice_helper(g, shape, axes=[0], starts=[0], ends=[2])
    if symbolic_helper._is_packed_list(size):
        wanted = [symbolic_helper._reshape_helper(g, one, [1]) for one in symbolic_helper._unpack_list(size)]
    else:
        wanted = [size]
    sizes = g.op(
        "Concat", kept, *(g.op("Cast", one, to_i=torch.onnx.TensorProtoDataType.INT64) for one in wanted), axis_i=0
    )
    empty = g.op("Constant", value_t=torch.tensor([], dtype=torch.float32))
    attributes: dict[str, Any] = {
        "mode_s": mode,
        "coordinate_transformation_mode_s": "align_corners" if corners else "half_pixel",
    }
    if mode == "cubic":
        attributes["cubic_coeff_a_f"] = -0.5  # what torch takes with antialiasing only
    if opset >= _ANTIALIAS_SINCE:
        attributes["antialias_i"] = 1
    if mode == "cubic" or opset >= _ANTIALIAS_SINCE:
        attributes["exclude_outside_i"] = 1  # torch weighs what is in the image only
    return g.op("Resize", image, empty, empty, sizes, **attributes)


def _grows(g: Any) -> bool:
    """Whether the image that was traced got no smaller, in height nor in width."""
    traced = g.original_node
    before, after = (symbolic_helper._get_tensor_sizes(v) for v in (traced.inputsAt(0), traced.output()))
    if before is None or after is None or None in (*before[2:], *after[2:]):
        return False
    return all(new >= old for old, new in zip(before[2:], after[2:], strict=True))
