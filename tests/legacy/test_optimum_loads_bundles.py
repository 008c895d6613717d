"""A bundle serves as it is to the people who run models with Optimum: its classes give what PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from onnxport.exporters import Recipe, export
from onnxport.exporters.engines import ENGINES
from zoo.decoders import ROWS as DECODERS
from zoo.encoder_decoders import ROWS as ENCODER_DECODERS
from zoo.encoder_decoders import write_text_model
from zoo.vision import ROWS as VISION

pytestmark = pytest.mark.skipif(
    bool(ENGINES["optimum"].missing), reason="Optimum's classes are not installed here: scripts/test_legacy runs these"
)
MakeCheckpoint = Callable[..., Path]
TEXTS = ["the graph was in the same runtime", "who won?"]
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}


def optimum_class(name: str) -> Any:
    import optimum.onnxruntime

    return getattr(optimum.onnxruntime, name)


def bundle_of(checkpoint: Path, out: Path, task: str, **recipe: Any) -> Path:
    export(checkpoint, out, recipe=Recipe(task=task, suite="quick", **recipe))
    return out


@pytest.mark.parametrize(
    ("task", "model_class"),
    [
        ("feature-extraction", "FeatureExtraction"),
        ("text-classification", "SequenceClassification"),
        ("token-classification", "TokenClassification"),
        ("question-answering", "QuestionAnswering"),
        ("fill-mask", "MaskedLM"),
        ("multiple-choice", "MultipleChoice"),
    ],
)
def test_text_encoders(make_checkpoint: MakeCheckpoint, tmp_path: Path, task: str, model_class: str) -> None:
    checkpoint = make_checkpoint("bert", task)
    bundle = bundle_of(checkpoint, tmp_path / "out", task)
    tokenizer = transformers.AutoTokenizer.from_pretrained(bundle)  # the bundle's own
    encoded = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
    if task == "multiple-choice":
        encoded = {name: tensor.unsqueeze(0) for name, tensor in encoded.items()}
    auto_class = "AutoModel" if task == "feature-extraction" else f"AutoModelFor{model_class}"
    reference = getattr(transformers, auto_class).from_pretrained(checkpoint)
    with torch.inference_mode():
        expected = reference(**encoded)
    for file in ("model.onnx", "model_optimized.onnx"):
        model = optimum_class(f"ORTModelFor{model_class}").from_pretrained(bundle, file_name=file)
        found = model(**encoded)
        names = [name for name in expected if name in found]
        assert names, "Optimum returns something that PyTorch returns too"
        for name in names:
            np.testing.assert_allclose(found[name].numpy(), expected[name].numpy(), **TOLERANCE)


def test_pipelines_take_it(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    checkpoint = make_checkpoint("bert", "text-classification")
    bundle = bundle_of(checkpoint, tmp_path / "out", "text-classification")
    tokenizer = transformers.AutoTokenizer.from_pretrained(bundle)
    served = optimum_class("ORTModelForSequenceClassification").from_pretrained(bundle)
    original = transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint)
    for text in TEXTS:
        (found,), (expected,) = (
            transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")(text)
            for model in (served, original)
        )
        assert found["label"] == expected["label"]
        assert found["score"] == pytest.approx(expected["score"], rel=1e-3, abs=1e-4)


def written(rows: Any, architecture: str, folder: Path) -> tuple[Path, Any]:
    (row, *_) = (row for row in rows if row.architecture == architecture)
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    row.write(checkpoint)
    return checkpoint, row


LENGTH = {"min_new_tokens": 8, "max_new_tokens": 8, "do_sample": False}


def check_generation(reference: Any, served: Any, encoded: Any) -> None:
    for beams in (1, 3):
        expected = reference.generate(**encoded, **LENGTH, num_beams=beams)
        found = served.generate(**encoded, **LENGTH, num_beams=beams)
        assert found.tolist() == expected.tolist(), f"{beams} beams"
        assert len({tuple(row) for row in expected[:, -8:].tolist()}) > 1, "the prompts must matter"


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "opt"])
def test_causal_language_models_generate(tmp_path: Path, architecture: str) -> None:
    checkpoint, row = written(DECODERS, architecture, tmp_path)
    bundle = bundle_of(checkpoint, tmp_path / "out", row.task)
    tokenizer = transformers.AutoTokenizer.from_pretrained(bundle)
    encoded = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert tokenizer.padding_side == "left"
    assert encoded["attention_mask"].min() == 0
    reference = transformers.AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    for file in ("model.onnx", "model_optimized.onnx"):
        served = optimum_class("ORTModelForCausalLM").from_pretrained(bundle, file_name=file)
        assert served.can_use_cache
        check_generation(reference, served, encoded)


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        # PyTorch itself fails to generate with more layers in the decoder than in the encoder, on transformers 4.57.
        ("t5", {"num_decoder_layers": 2}),
        ("marian", {}),
    ],
)
def test_encoder_decoder_models_generate(tmp_path: Path, architecture: str, settings: dict[str, Any]) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    write_text_model(architecture, checkpoint, **settings)
    bundle = bundle_of(checkpoint, tmp_path / "out", "text2text-generation")
    tokenizer = transformers.AutoTokenizer.from_pretrained(bundle)
    encoded = tokenizer(TEXTS, padding=True, return_tensors="pt")
    reference = transformers.AutoModelForSeq2SeqLM.from_pretrained(checkpoint).eval()
    for form in ("", "_optimized"):
        served = optimum_class("ORTModelForSeq2SeqLM").from_pretrained(
            bundle,
            encoder_file_name=f"encoder_model{form}.onnx",
            decoder_file_name=f"decoder_model{form}.onnx",
            decoder_with_past_file_name=f"decoder_with_past_model{form}.onnx",
        )
        assert served.can_use_cache
        check_generation(reference, served, encoded)


def test_speech_to_text_generates(tmp_path: Path) -> None:
    checkpoint, row = written(ENCODER_DECODERS, "whisper", tmp_path)
    bundle = bundle_of(checkpoint, tmp_path / "out", row.task, variants=("base",))
    reference = transformers.WhisperForConditionalGeneration.from_pretrained(checkpoint).eval()
    heard = torch.randn(2, 8, 100, generator=torch.Generator().manual_seed(0))
    served = optimum_class("ORTModelForSpeechSeq2Seq").from_pretrained(bundle)
    check_generation(reference, served, {"input_features": heard})


def test_image_classification(tmp_path: Path) -> None:
    checkpoint, row = written([row for row in VISION if row.task == "image-classification"], "vit", tmp_path)
    bundle = bundle_of(checkpoint, tmp_path / "out", row.task)
    pixels = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    reference = transformers.AutoModelForImageClassification.from_pretrained(checkpoint)
    with torch.inference_mode():
        expected = reference(pixel_values=pixels).logits
    served = optimum_class("ORTModelForImageClassification").from_pretrained(bundle)
    np.testing.assert_allclose(served(pixel_values=pixels).logits.numpy(), expected.numpy(), **TOLERANCE)
