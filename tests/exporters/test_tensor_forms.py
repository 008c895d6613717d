"""What stands in the place of a method while a graph is traced computes what the method does."""

from __future__ import annotations

import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest
import torch
import transformers
from onnx import numpy_helper
from transformers.modeling_outputs import BaseModelOutput

from onnxport.exporters import Recipe, export
from onnxport.exporters.bundle import load_bundle, seal
from onnxport.exporters.cli.app import run
from onnxport.exporters.components.encoder_decoder_modules import FirstStep, NextStep
from onnxport.exporters.engines.tensor_forms import FORMS, tensor_forms
from onnxport.exporters.errors import SignatureError
from onnxport.exporters.generation.generation import CASE
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.localization.search import localize
from onnxport.exporters.verification import verify_bundle
from zoo.audio import write_waveform
from zoo.encoder_decoders import write_text_model
from zoo.multimodal import write_vilt
from zoo.text import write

CLOSE = {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.float16: {"rtol": 1e-2, "atol": 2e-2}}
"""float16 keeps three digits, and both sides round in every layer."""
DTYPES = pytest.mark.parametrize("dtype", CLOSE, ids=["float32", "float16"])
WINDOW = 8


@pytest.fixture(scope="module")
def longformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("longformer")
    write("longformer", "feature-extraction", folder)
    return folder


@pytest.fixture(scope="module")
def led(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("led")
    write_text_model("led", folder)
    return folder


@pytest.fixture(scope="module")
def vilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vilt")
    write_vilt(folder)
    return folder


def _attention_mask(kind: str, shape: tuple[int, int]) -> np.ndarray:
    """Of 0 (padding), 1 (the window alone) and 2 (global attention); the first token of a row is real."""
    rng = np.random.default_rng(0)
    mask = np.ones(shape, dtype=np.int64)
    if kind == "padded":
        mask[0, shape[1] // 2 :] = 0
    elif kind == "first is global":
        mask[:, 0] = 2
    elif kind == "one row is global":
        mask[-1, ::3] = 2
    elif kind == "mixed":
        mask = rng.integers(0, 3, shape)
        mask[:, 0] = np.maximum(mask[:, 0], 1)
    elif kind == "all are global":
        mask[...] = 2
    return mask


MASKS = ("real", "padded", "first is global", "one row is global", "mixed", "all are global")
# Less than a window, as many as one, no multiple of it, and a multiple.
LENGTHS = (1, 5, WINDOW, 29, 4 * WINDOW)


@DTYPES
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("length", LENGTHS)
def test_longformers_attention(longformer: Path, kind: str, length: int, dtype: torch.dtype) -> None:
    model = transformers.LongformerModel.from_pretrained(longformer, dtype=dtype).eval()
    ids = torch.from_numpy(np.random.default_rng(length).integers(2, 50, (3, length)))
    feed = {"input_ids": ids, "attention_mask": torch.from_numpy(_attention_mask(kind, (3, length)))}
    with torch.inference_mode():
        expected = model(**feed, output_hidden_states=True)
        with tensor_forms(model):
            seen = model(**feed, output_hidden_states=True)
    torch.testing.assert_close(seen.last_hidden_state, expected.last_hidden_state, **CLOSE[dtype])
    torch.testing.assert_close(seen.hidden_states[1], expected.hidden_states[1], **CLOSE[dtype])


@DTYPES
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("length", LENGTHS)
def test_the_same_of_an_encoder_that_a_decoder_reads(led: Path, kind: str, length: int, dtype: torch.dtype) -> None:
    encoder = transformers.LEDForConditionalGeneration.from_pretrained(led, dtype=dtype).eval().get_encoder()
    ids = torch.from_numpy(np.random.default_rng(length).integers(7, 50, (3, length)))
    mask = torch.from_numpy(_attention_mask(kind, (3, length)))
    with torch.inference_mode():
        expected = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        with tensor_forms(encoder):
            seen = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(seen, expected, **CLOSE[dtype])


def test_an_encoder_with_windows_and_its_decoder_generate(led: Path, tmp_path: Path) -> None:
    """From a text: `generate` of transformers 4 hides tokens with global attention from the decoder."""
    bundle = export(led, tmp_path / "out", recipe=Recipe(variants=("base",)))
    encoder = bundle.component("encoder_model")
    assert encoder.engine == "torchscript"
    assert encoder.axes["encoder_sequence"].fixed is None
    report = bundle.report()
    assert report is not None
    assert [check.verdict for check in report.checks if check.case == CASE] == ["pass"]


def test_one_graph_of_longformer_has_windows_and_global_attention(longformer: Path, tmp_path: Path) -> None:
    """A trace would keep the way that its example took: without global attention, of one length."""
    bundle = export(longformer, tmp_path / "out", recipe=Recipe(suite="quick", variants=("base",)))
    assert bundle.component().axes["sequence"].fixed is None
    assert bundle.component().engine == "torchscript"
    model, session = transformers.LongformerModel.from_pretrained(longformer).eval(), bundle.session("base")
    for kind in MASKS:
        for length in LENGTHS:
            ids = np.random.default_rng(length).integers(2, 50, (3, length))
            feed = {"input_ids": ids, "attention_mask": _attention_mask(kind, (3, length))}
            with torch.inference_mode():
                expected = model(**{name: torch.from_numpy(array) for name, array in feed.items()})
            (seen,) = session.run(["last_hidden_state"], feed)
            np.testing.assert_allclose(seen, expected.last_hidden_state.numpy(), rtol=1e-3, atol=1e-4)


def _seven(file: Path) -> None:
    """Overwrites all that global attention is computed with."""
    model = onnx.load(file)
    planted = [tensor for tensor in model.graph.initializer if re.search(r"_global\b", tensor.name)]
    assert planted
    for tensor in planted:
        tensor.CopyFrom(numpy_helper.from_array(np.full(tensor.dims, 7.0, dtype=np.float32), tensor.name))
    onnx.save(model, file)


@pytest.mark.parametrize("kind", ["fill-mask", "led"])
def test_global_attention_is_asked_of_every_graph_that_has_it(
    kind: str, led: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No tokenizer puts a 2 into a mask: without cases of their own, weights that are read for it alone may be any."""
    source, name, out = led, "encoder_model", tmp_path / "out"
    variants: tuple[Literal["base", "optimized"], ...] = ("base",)
    if kind == "fill-mask":
        source, name = tmp_path / "source", "model"
        variants = ("base", "optimized")
        write("longformer", kind, source)
    bundle = export(source, out, recipe=Recipe(suite="quick", variants=variants))
    asked = ["--against", str(source), "--suite", "quick", "--quiet"]
    file = shutil.copy(out / f"{name}.onnx", tmp_path / f"{name}.onnx")
    assert run(["verify", str(file), *asked]) == 0
    _seven(Path(file))
    capsys.readouterr()
    assert run(["verify", str(file), *asked]) == 1
    assert "global.mixed" in capsys.readouterr().out
    for variant in variants:
        planted = Path(shutil.copytree(out, tmp_path / variant))
        _seven(planted / bundle.component(name).variants[variant].file)
        seal(planted, load_bundle(planted).manifest)
        report = verify_bundle(load_bundle(planted), suite="quick")
        failed = [check for check in report.checks if check.verdict == "fail"]
        assert {(check.component, check.variant) for check in failed} == {(name, variant)}
        assert {check.case for check in failed} == {"global.first", "global.mixed"}
    assert run(["verify", str(tmp_path / "base"), "--suite", "quick", "--quiet"]) == 1


def test_global_attention_is_nothing_to_a_decoder(led: Path) -> None:
    """A loop hands the one mask to the encoder and to the decoder, for which a 2 is a token as any other."""
    model = transformers.LEDForConditionalGeneration.from_pretrained(led).eval()
    torch.manual_seed(0)
    mask = torch.from_numpy(_attention_mask("mixed", (3, 12)))
    ids, states = torch.randint(7, 50, (3, 4)), torch.randn(3, 12, model.config.d_model)
    first = {"input_ids": ids, "encoder_hidden_states": states}
    with torch.inference_mode():
        expected = model(
            encoder_outputs=BaseModelOutput(states), attention_mask=mask.clamp(max=1), decoder_input_ids=ids
        ).logits
        seen = FirstStep(model)(**first, encoder_attention_mask=mask)
        cache = {"past_key_values" + name.removeprefix("present"): it for name, it in seen.items() if name != "logits"}
        steps = [
            NextStep(model, model.config.d_model)(input_ids=ids[:, :1], encoder_attention_mask=one, **cache)["logits"]
            for one in (mask, mask.clamp(max=1))
        ]
    torch.testing.assert_close(seen["logits"], expected, **CLOSE[torch.float32])
    torch.testing.assert_close(*steps)


def test_attentions_of_longformer_have_as_many_columns_as_the_mask_says(
    longformer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--output", "attentions", "--engine", "torchscript"]
    assert run(["export", str(longformer), str(tmp_path / "out"), *flags]) == 2
    assert "a tensor's value becomes a Python value" in capsys.readouterr().err


@DTYPES
def test_vilts_patches_in_order(vilt: Path, dtype: torch.dtype) -> None:
    model = transformers.ViltForQuestionAnswering.from_pretrained(vilt, dtype=dtype).eval()
    torch.manual_seed(0)
    for height, width in ((32, 32), (16, 40), (8, 8)):
        pixels, mask = torch.randn(3, 3, height, width), torch.ones(3, height, width, dtype=torch.long)
        mask[1, :, width // 16 * 8 :] = 0 if width > 8 else 1
        mask[2, height // 16 * 8 :] = 0 if height > 8 else 1
        feed = {"input_ids": torch.randint(2, 50, (3, 7)), "pixel_values": pixels.to(dtype), "pixel_mask": mask}
        with torch.inference_mode():
            expected = model(**feed).logits
            with tensor_forms(model):
                seen = model(**feed).logits
        torch.testing.assert_close(seen, expected, **CLOSE[dtype])


def test_a_vilt_in_float16(vilt: Path, tmp_path: Path) -> None:
    recipe = Recipe(suite="quick", variants=("base",), dtype="float16", engine="torchscript")
    assert export(vilt, tmp_path / "out", recipe=recipe).manifest.verification.verdict == "pass"


def test_a_vilt_that_looks_at_some_of_its_patches_has_no_graph(tmp_path: Path) -> None:
    source = tmp_path / "vilt"
    source.mkdir()
    write_vilt(source, max_image_length=4)
    with pytest.raises(SignatureError, match="ViltForQuestionAnswering returns another 'logits' when it runs again"):
        export(source, tmp_path / "out", recipe=Recipe(suite="quick", variants=("base",)))
    assert not (tmp_path / "out").exists()


@DTYPES
@pytest.mark.parametrize("kind", ["wav2vec2", "wavlm", "unispeech-sat", "wav2vec2-conformer", "data2vec-audio"])
def test_speakers_of_a_padded_batch(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    write_waveform(kind, "audio-xvector", tmp_path, mask=True, use_weighted_layer_sum=kind == "wavlm")
    model = transformers.AutoModelForAudioXVector.from_pretrained(tmp_path, dtype=dtype).eval()
    torch.manual_seed(0)
    mask = torch.ones(4, 6000, dtype=torch.long)
    mask[1, 4000:] = mask[2, 1700:] = mask[3, 5999:] = 0
    feed = {"input_values": (torch.randn(4, 6000) * mask).to(dtype), "attention_mask": mask}
    with torch.inference_mode():
        expected = model(**feed)
        with tensor_forms(model):
            seen = model(**feed)
            alone = model(input_values=feed["input_values"]).embeddings
    torch.testing.assert_close(seen.embeddings, expected.embeddings, **CLOSE[dtype])
    torch.testing.assert_close(seen.logits, expected.logits, **CLOSE[dtype])
    with torch.inference_mode():
        torch.testing.assert_close(alone, model(input_values=feed["input_values"]).embeddings)


def test_frames_whose_sum_is_more_than_float16_holds(tmp_path: Path) -> None:
    write_waveform("wav2vec2", "audio-xvector", tmp_path, mask=True)
    model = transformers.AutoModelForAudioXVector.from_pretrained(tmp_path, dtype=torch.float16).eval()
    layer = model.tdnn[-1].kernel
    with torch.no_grad():
        layer.bias.fill_(30_000.0)
        model.feature_extractor.weight.mul_(1e-4)
    mask = torch.ones(2, 6000, dtype=torch.long)
    mask[1, 4000:] = 0
    feed = {"input_values": torch.randn(2, 6000).to(torch.float16), "attention_mask": mask}
    with torch.inference_mode():
        expected = model(**feed).embeddings
        with tensor_forms(model):
            seen = model(**feed).embeddings
    assert torch.isfinite(expected).all()
    torch.testing.assert_close(seen, expected, **CLOSE[torch.float16])


def test_speakers_of_any_number_of_sounds(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_waveform("wav2vec2", "audio-xvector", source, mask=True)
    bundle = export(source, tmp_path / "out", recipe=Recipe(variants=("base",)))
    assert bundle.component().axes["batch"].fixed is None
    assert bundle.component().engine == "torchscript"


@pytest.mark.parametrize("name", ["vilt", "longformer"])
def test_localize_compares_with_the_forms_that_were_traced(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """ViLT itself gives its patches in another order at every call: its layers are none to compare with."""
    source = request.getfixturevalue(name)
    bundle = export(source, tmp_path / "out", recipe=Recipe(suite="quick", variants=("base",)))
    found = localize(bundle, str(source), HubOptions(), tmp_path / "found")
    assert found.verdict == "agrees"
    assert len(found.variants[0].layers) > 10


@pytest.mark.parametrize("model", ["LongformerModel", "ViltModel"])
def test_a_form_is_there_while_a_graph_is_traced_and_no_longer(longformer: Path, vilt: Path, model: str) -> None:
    module = getattr(transformers, model).from_pretrained(longformer if model == "LongformerModel" else vilt)
    before = [dict(vars(part)) for part in module.modules()]
    with tensor_forms(module):
        assert [dict(vars(part)) for part in module.modules()] != before
    assert [dict(vars(part)) for part in module.modules()] == before


def test_a_method_of_the_parts_own_is_put_back(longformer: Path) -> None:
    """As hooks leave one: accelerate's stand on the instance, over the method of its class."""
    module = transformers.LongformerModel.from_pretrained(longformer)
    encoder = module.encoder
    encoder.forward = hooked = lambda *args, **options: type(encoder).forward(encoder, *args, **options)
    before = [dict(vars(part)) for part in module.modules()]
    with tensor_forms(module):
        assert encoder.forward is not hooked
    assert [dict(vars(part)) for part in module.modules()] == before


def test_every_form_stands_for_a_method_that_there_is() -> None:
    for path, methods in FORMS.items():
        module, _, name = path.partition(":")
        kind = getattr(import_module(module), name)
        assert all(callable(getattr(kind, method)) for method in methods)
