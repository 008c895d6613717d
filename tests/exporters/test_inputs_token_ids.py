from __future__ import annotations

import numpy as np

from onnxport.exporters.inputs.token_ids import draw_ids


def test_all_ids_but_the_reserved_ones_are_drawn() -> None:
    ids = draw_ids((50, 40), 8, {0, 5, 6}, np.random.default_rng(0))
    assert ids.shape == (50, 40)
    assert ids.dtype == np.int64
    assert set(ids.ravel().tolist()) == {1, 2, 3, 4, 7}
