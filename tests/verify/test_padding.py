from __future__ import annotations

import numpy as np
import pytest

from onnxport.verify.padding import real_positions

MASK = np.array([[1, 1, 0], [1, 0, 0]])
TOKENS = ("batch", "sequence")


@pytest.mark.parametrize(
    ("axes", "shape", "expected"),
    [
        (("batch", "sequence"), (2, 3), MASK),
        (("batch", "sequence", 384), (2, 3, 1), MASK[..., None]),
        (("sequence", "batch", 384), (3, 2, 1), MASK.T[..., None]),
        (("batch", 12, "sequence", "sequence"), (2, 1, 3, 1), MASK[:, None, :, None]),  # the query's axis
        (("batch", 384), (2, 1), [[1], [1]]),
        (("sequence",), (3,), [1, 1, 0]),
        ((384,), (1,), [1]),
        ((), (), 1),
        (("batch", "other_sequence", 8), (2, 1, 1), [[[1]], [[1]]]),
    ],
)
def test_axes_align_by_name(axes, shape, expected) -> None:
    real = real_positions(MASK, TOKENS, axes)
    assert real.dtype == bool
    assert real.shape == shape
    assert (real == (np.asarray(expected) != 0)).all()


def test_a_row_without_any_real_position_is_padding_in_pooled_outputs_too() -> None:
    assert real_positions(np.array([[1, 0], [0, 0]]), TOKENS, ("batch", 4)).tolist() == [[True], [False]]


def test_a_fixed_size_never_aligns() -> None:
    # [1, 3] is a pooled output whose hidden size happens to be the sequence length.
    assert real_positions(np.array([[1, 1, 0]]), (1, 3), (1, 3)).all()
    assert real_positions(MASK, ("batch", 3), ("batch", 3)).all()


def test_any_value_but_zero_is_real() -> None:
    assert real_positions(np.array([[0.0, 0.5, 2.0]]), TOKENS, TOKENS).tolist() == [[False, True, True]]
