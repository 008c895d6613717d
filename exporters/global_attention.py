"""Global attention in the mask: in models with windows (Longformer, LED), a token with a 2 there attends to all."""

from __future__ import annotations

import inspect

from torch import nn


def has_global_attention(model: nn.Module) -> bool:
    """Whether a part of the model is told which tokens have global attention: those with a 2 in the mask.

    That a 2 changes the result would say nothing: many a model takes it for padding, or for more than real.
    """
    return any("is_index_global_attn" in inspect.signature(part.forward).parameters for part in model.modules())
