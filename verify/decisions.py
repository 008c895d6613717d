"""Decisions: what a user acts on is which entry of an output is the highest, or which few are, not their values."""

from __future__ import annotations

import numpy as np

from onnxport.verify.errors import VerificationError

_BLOCK_ELEMENTS = 2**20


def decisions_kept(
    reference: np.ndarray, candidate: np.ndarray, axis: int, real: np.ndarray | None = None
) -> tuple[int, int]:
    """Returns how many decisions (argmax along `axis`) the candidate keeps, and of how many.

    Padded positions take no part: along `axis` they cannot be chosen, elsewhere they are not counted. A choice that the
    reference rates as high as its own (a tie) is kept.

    Raises:
        VerificationError: the output has no such axis.
    """
    _require_axis(reference, axis)
    counted = np.ones(np.delete(reference.shape, axis), dtype=bool)
    if real is not None:
        allowed = np.broadcast_to(real, reference.shape)
        counted = np.asarray(allowed.any(axis=axis))
        if real.shape[axis] != 1:
            reference = np.where(allowed, reference, -np.inf)
            candidate = np.where(allowed, candidate, -np.inf)
    if not counted.any():
        return 0, 0
    best = reference.max(axis=axis)
    chosen = np.take_along_axis(reference, np.expand_dims(candidate.argmax(axis=axis), axis), axis).squeeze(axis)
    return int(np.sum((chosen == best)[counted])), int(np.sum(counted))


def top_kept(
    reference: np.ndarray, candidate: np.ndarray, axis: int, k: int, real: np.ndarray | None = None
) -> tuple[int, int]:
    """Returns how many of the `k` highest entries of each decision the candidate has among its own, and of how many.

    With k 1 this is `decisions_kept`. Padding and ties count as there: an entry that the reference rates as high as its
    k-th is kept. A decision among k entries or fewer takes no part, as nothing could get lost in it.

    Raises:
        VerificationError: the output has no such axis.
    """
    _require_axis(reference, axis)
    entries = reference.shape[axis]
    if entries <= k or not reference.size:
        return 0, 0
    b = np.moveaxis(reference, axis, -1).reshape(-1, entries)
    a = np.moveaxis(candidate, axis, -1).reshape(-1, entries)
    allowed = None
    if real is not None:
        allowed = np.moveaxis(np.broadcast_to(real, reference.shape), axis, -1).reshape(-1, entries)
    kept = total = 0
    step = max(1, _BLOCK_ELEMENTS // entries)
    for start in range(0, len(b), step):
        rows = slice(start, start + step)
        expected, actual = b[rows], a[rows]
        if allowed is not None:
            here = allowed[rows]
            chosen_from = here.sum(axis=-1) > k
            here, expected, actual = here[chosen_from], expected[chosen_from], actual[chosen_from]
            expected, actual = np.where(here, expected, -np.inf), np.where(here, actual, -np.inf)
        if not len(expected):
            continue
        lowest = np.partition(expected, entries - k, axis=-1)[:, entries - k, None]
        chosen = np.argpartition(actual, entries - k, axis=-1)[:, entries - k :]
        kept += int(np.count_nonzero(np.take_along_axis(expected, chosen, axis=-1) >= lowest))
        total += k * len(expected)
    return kept, total


def _require_axis(reference: np.ndarray, axis: int) -> None:
    if not -reference.ndim <= axis < reference.ndim:
        raise VerificationError(
            f"A decision is to be taken along axis {axis}, and the output has the shape {list(reference.shape)}. "
            "Name one of its axes."
        )
