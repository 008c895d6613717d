"""Attention masks of transformers 4, which makes them under torch.vmap: TorchScript cannot trace that.

A mask function says of a batch row, a head, a query and a key position whether the query may see the key. transformers
4 maps it over four ranges with vmap; transformers 5 gives it ranges that broadcast, which is the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from torch import Tensor

MaskFunction = Callable[..., Tensor]


@contextmanager
def traceable_masks() -> Iterator[None]:
    """While it lasts, transformers 4 makes its masks by broadcasting. Does nothing on transformers 5."""
    try:
        from transformers import masking_utils
    except ImportError:  # a plain module needs no transformers
        yield
        return
    # What maps, and what lets a function under vmap index a tensor, which is not traced either.
    ours = {"_vmap_for_bhqkv": _broadcast, "TransformGetItemToIndex": nullcontext}
    if not all(hasattr(masking_utils, name) for name in ours):
        yield
        return
    theirs = {name: getattr(masking_utils, name) for name in ours}
    try:
        for name, replacement in ours.items():
            setattr(masking_utils, name, replacement)
        yield
    finally:
        for name, original in theirs.items():
            setattr(masking_utils, name, original)


def _broadcast(mask_function: MaskFunction, bh_indices: bool = True) -> MaskFunction:
    """Returns the function over whole ranges, [batch, heads, queries, keys]; without `bh_indices`, [queries, keys]."""

    def over_ranges(batch: Tensor | None, heads: Tensor | None, queries: Tensor, keys: Tensor) -> Tensor:
        if batch is None or heads is None:
            return mask_function(batch, heads, queries[:, None], keys[None, :]).expand(len(queries), len(keys))
        mask = mask_function(
            batch[:, None, None, None],
            heads[None, :, None, None],
            queries[None, None, :, None],
            keys[None, None, None, :],
        )
        return mask.expand(batch.shape[0], heads.shape[0], queries.shape[0], keys.shape[0])

    return over_ranges
