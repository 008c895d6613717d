"""Mixtures of experts while they are traced: a loop over the experts that got tokens depends on the tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

# One batched product with the weights that each token chose: transformers' own, equal to its loop.
_TRACEABLE = "batched_mm"


@contextmanager
def traceable_experts(model: nn.Module) -> Iterator[None]:
    """While TorchScript traces, lets transformers compute its experts without a loop; does nothing else at any time.

    A release that has no choice of implementations is traced as it is, and refused where that depends on data.
    """
    choose: Any = getattr(model, "set_experts_implementation", None)
    current: Any = getattr(model, "get_experts_implementation", None)
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
    if not tracing or choose is None or current is None:
        yield
        return
    kept = current()
    if set(kept.values()) == {None} or not _has_experts(model):
        yield
        return
    choose(_TRACEABLE)
    try:
        yield
    finally:
        choose(kept)


def _has_experts(model: nn.Module) -> bool:
    return any("expert" in type(module).__name__.lower() for module in model.modules())
