"""decoder_model_merged serves people who run it with Optimum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers

from onnxport.exporters import Recipe, export
from onnxport.exporters.engines import ENGINES
from zoo.encoder_decoders import write_text_model

pytestmark = pytest.mark.skipif(
    bool(ENGINES["optimum"].missing), reason="Optimum's classes are not installed here: scripts/test_legacy runs these"
)
LENGTH = {"min_new_tokens": 8, "max_new_tokens": 8, "do_sample": False}


def test_a_merged_decoder_generates(tmp_path: Path) -> None:
    import optimum.onnxruntime

    load: Any = optimum.onnxruntime.ORTModelForSeq2SeqLM.from_pretrained
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    # Optimum takes heads to be d_model / num_heads wide, transformers 4.57 the decoder to be as deep as the encoder.
    write_text_model("t5", checkpoint, d_kv=8, num_decoder_layers=2)
    bundle = tmp_path / "out"
    export(checkpoint, bundle, recipe=Recipe(task="text2text-generation", suite="quick", merged=True))
    tokenizer = transformers.AutoTokenizer.from_pretrained(bundle)
    encoded = tokenizer(["the graph was in the same runtime", "who won?"], padding=True, return_tensors="pt")
    reference: Any = transformers.AutoModelForSeq2SeqLM.from_pretrained(checkpoint).eval()
    served = load(bundle, use_merged=True)
    assert Path(served.decoder.session._model_path).name == "decoder_model_merged.onnx"
    assert served.decoder.is_merged
    # Optimum names no file of a merged decoder beside the standard one: the optimised one takes its place.
    (bundle / "decoder_model_merged_optimized.onnx").replace(bundle / "decoder_model_merged.onnx")
    for model in (served, load(bundle, use_merged=True)):
        for beams in (1, 3):
            expected = reference.generate(**encoded, **LENGTH, num_beams=beams)
            assert model.generate(**encoded, **LENGTH, num_beams=beams).tolist() == expected.tolist(), f"{beams} beams"
        assert len({tuple(row) for row in expected[:, -8:].tolist()}) > 1, "the prompts must matter"
