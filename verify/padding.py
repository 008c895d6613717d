"""Which positions of an output are padding, by the names of its axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.verify.contract import Dim


def real_positions(mask: np.ndarray, mask_axes: Sequence[Dim], output_axes: Sequence[Dim]) -> np.ndarray:
    """Returns a bool array that broadcasts to the output; True where the position is real.

    A mask axis and an output axis are the same if they have the same name; where an output has an axis twice (attention
    maps), the first one counts. Fixed sizes have no name and never align: a hidden size that happens to equal the
    sequence length must not hide anything. Along mask axes that the output lacks (a pooled `["batch", 384]`), an output
    position is padding only if all that it was made from is.

    Args:
        mask: zeros mark padded positions; one entry per position of `mask_axes`.
        mask_axes: axes of the mask, `("batch", "sequence")`.
        output_axes: axes of the output, `("batch", "sequence", 384)`.
    """
    names = list(output_axes)
    kept = [i for i, axis in enumerate(mask_axes) if isinstance(axis, str) and axis in names]
    dropped = tuple(i for i in range(mask.ndim) if i not in kept)
    real = (mask != 0).any(axis=dropped)
    targets = [names.index(mask_axes[i]) for i in kept]
    shape = [1] * len(names)
    for target, size in zip(targets, real.shape, strict=True):
        shape[target] = size
    # The axes may stand in another order in the output ([sequence, batch, hidden]).
    return np.asarray(real.transpose(np.argsort(targets)).reshape(shape))
