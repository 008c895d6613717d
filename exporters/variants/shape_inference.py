"""ONNX Runtime's symbolic shape inference, by which its fusions tell the shapes of what is added.

It knows the reductions whose axes are an input since opset 13 or 18 (sum, mean), and forgets the others: the first
ReduceL2 of opset 18, as in normalised sentence embeddings, ends it, and nothing that needs a shape is fused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onnxruntime.transformers.shape_infer_helper import SymbolicShapeInference

_LIKE_MEAN = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMin", "ReduceSumSquare",
)  # fmt: skip


@contextmanager
def reductions_inferred() -> Iterator[None]:
    """While it lasts, all reductions get their shapes as ReduceMean does."""
    original = SymbolicShapeInference.__init__

    def extended(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        for op in _LIKE_MEAN:
            self.dispatcher_.setdefault(op, self.dispatcher_["ReduceMean"])

    SymbolicShapeInference.__init__ = extended
    try:
        yield
    finally:
        SymbolicShapeInference.__init__ = original
