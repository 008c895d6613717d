"""Which positions of an output are padding, by the names of its axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxport.verify.contract import Dim, addends, size_of


def real_positions(
    mask: np.ndarray, mask_axes: Sequence[Dim], output_axes: Sequence[Dim], sizes: Mapping[str, int] | None = None
) -> np.ndarray:
    """Returns a bool array that broadcasts to the output; True where the position is real.

    A mask axis and an output axis are the same if they have the same name; where an output has an axis twice (attention
    maps), the first one counts. Fixed sizes have no name and never align: a hidden size that happens to equal the
    sequence length must not hide anything. Along mask axes that the output lacks (a pooled `["batch", 384]`), an output
    position is padding only if all that it was made from is.

    A mask axis that is a sum ("past_sequence+sequence") covers the cache and what is new: an output with the last of
    its addends has the last of its positions.

    Args:
        mask: zeros mark padded positions; one entry per position of `mask_axes`.
        mask_axes: axes of the mask, `("batch", "sequence")`.
        output_axes: axes of the output, `("batch", "sequence", 384)`.
        sizes: of every axis; needed where a mask axis is a sum.
    """
    names = list(output_axes)
    mask, mask_axes = _last_addends(mask, mask_axes, names, sizes or {})
    kept = [i for i, axis in enumerate(mask_axes) if isinstance(axis, str) and axis in names]
    dropped = tuple(i for i in range(mask.ndim) if i not in kept)
    real = (mask != 0).any(axis=dropped)
    targets = [names.index(mask_axes[i]) for i in kept]
    shape = [1] * len(names)
    for target, size in zip(targets, real.shape, strict=True):
        shape[target] = size
    # The axes may stand in another order in the output ([sequence, batch, hidden]).
    return np.asarray(real.transpose(np.argsort(targets)).reshape(shape))


def _last_addends(
    mask: np.ndarray, mask_axes: Sequence[Dim], output_axes: Sequence[Dim], sizes: Mapping[str, int]
) -> tuple[np.ndarray, Sequence[Dim]]:
    """Cuts the mask to the last addend along sums that the output lacks and whose last addend it has."""
    axes = list(mask_axes)
    for position, dim in enumerate(mask_axes):
        last = addends(dim)[-1]
        if last != dim and dim not in output_axes and last in output_axes:
            axes[position] = last
            new = range(mask.shape[position] - size_of(last, sizes), mask.shape[position])
            mask = np.take(mask, new, axis=position)
    return mask, axes
