from __future__ import annotations

from onnxport.exporters.manifest import Preprocessing


def test_of_several_parts_the_first_that_says_anything_is_heard() -> None:
    text = Preprocessing(files=(), max_length=None, padding_side="left", normalize=False)
    speech = Preprocessing(files=("config.json",), sampling_rate=16_000, max_length=64, padding_side="right")
    assert Preprocessing.together([text, speech]) == Preprocessing(
        files=("config.json",), max_length=64, padding_side="left", normalize=False, sampling_rate=16_000
    )
    assert Preprocessing.together([]) == Preprocessing()
