"""Operators that TorchScript's exporter lacks, or translates wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.onnx import symbolic_helper, symbolic_opset13

Value = Any
"""A value of the graph that is being written, or None where the operator was called without it."""


@contextmanager
def more_operators(opset: int) -> Iterator[None]:
    """While it lasts, TorchScript's exporter translates the operators of this module as it says, at that opset."""
    for name, symbolic in _OPERATORS.items():
        torch.onnx.register_custom_op_symbolic(name, symbolic, opset)
    try:
        yield
    finally:
        for name in _OPERATORS:
            torch.onnx.unregister_custom_op_symbolic(name, opset)


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


_OPERATORS: dict[str, Callable[..., Value]] = {"aten::repeat_interleave": _repeat_interleave, "aten::expm1": _expm1}
