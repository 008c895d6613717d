"""Encoder-decoder models: three graphs that answer, and generate, as the model does; and faults that must show."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import transformers
from torch import Tensor

from onnxport.exporters import Recipe, export, load_bundle
from onnxport.exporters.bundle import Bundle
from onnxport.exporters.checkpoint import load_checkpoint
from onnxport.exporters.components.encoder_decoder import components, divide
from onnxport.exporters.components.encoder_decoder_modules import STATES, STATES_MASK, FirstStep, NextStep, past_name
from onnxport.exporters.errors import BundleError, EngineError, RecipeError, SignatureError, VerificationFailed
from onnxport.exporters.generation.generation import CASE
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.loading import load
from onnxport.exporters.localization.search import localize
from onnxport.exporters.source import find_folder
from onnxport.exporters.verification import verify_bundle
from zoo import randomise
from zoo.encoder_decoders import write_speech_to_text, write_text_model, write_vision_model, write_whisper
from zoo.tokenizer import VOCABULARY, write_tokenizer

BASE: dict[str, Any] = {"variants": ("base",), "engine": "torchscript"}


def _export(write: Any, folder: Path, **recipe: Any) -> Bundle:
    source = folder / "source"
    source.mkdir()
    write(source)
    return export(source, folder / "out", recipe=Recipe(**{**BASE, **recipe}))


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return _export(partial(write_text_model, "bart"), tmp_path_factory.mktemp("bart"))


def _checkpoint(source: Path, **recipe: Any) -> Any:
    hub = HubOptions()
    return load_checkpoint(find_folder(str(source), hub), Recipe(**recipe), hub)


def _verdict(bundle: Bundle) -> str:
    return next(check.verdict for check in bundle.report().checks if check.case == CASE)


def test_the_graphs_have_the_names_and_shapes_that_optimum_loads(bart: Bundle) -> None:
    assert list(bart.manifest.components) == ["encoder_model", "decoder_model", "decoder_with_past_model"]
    encoder, first, further = bart.manifest.components.values()
    assert [spec.name for spec in encoder.inputs] == ["input_ids", "attention_mask"]
    assert [spec.name for spec in encoder.outputs] == ["last_hidden_state"]
    kinds = ("decoder.key", "decoder.value", "encoder.key", "encoder.value")
    assert [spec.name for spec in first.inputs] == ["input_ids", STATES_MASK, STATES]
    assert [spec.name for spec in first.outputs] == [
        "logits",
        *(f"present.{n}.{kind}" for n in (0, 1) for kind in kinds),
    ]
    past = [f"past_key_values.{n}.{kind}" for n in (0, 1) for kind in kinds]
    assert [spec.name for spec in further.inputs] == ["input_ids", STATES_MASK, *past]
    present = [f"present.{n}.{kind}" for n in (0, 1) for kind in kinds[:2]]
    assert [spec.name for spec in further.outputs] == ["logits", *present]
    shapes = {spec.name: spec.shape for spec in (*further.inputs, *further.outputs)}
    assert shapes["past_key_values.1.encoder.value"] == ("batch", 4, "encoder_sequence", 8)
    assert shapes["present.1.decoder.key"] == ("batch", 4, "past_decoder_sequence+decoder_sequence", 8)
    assert {"generation_config.json", "tokenizer.json"} <= set(bart.manifest.preprocessing.files)


def test_bart_generates_a_padded_batch_of_mixed_lengths(bart: Bundle) -> None:
    assert bart.manifest.verification.verdict == "pass"
    assert _verdict(bart) == "pass"
    mask = next(
        case.inputs[STATES_MASK]
        for case in components(_checkpoint(bart.path.parent / "source"))["decoder_with_past_model"].cases("standard")
        if case.name == "real.text"
    )
    assert len(set(mask.sum(axis=1).tolist())) > 1


def test_every_step_depends_on_the_cache_and_the_mask(bart: Bundle) -> None:
    """Nothing that is compared would pass without it."""
    exportable = components(_checkpoint(bart.path.parent / "source"))["decoder_with_past_model"]
    case = next(case for case in exportable.cases("standard") if case.name == "real.text")
    session = onnxruntime.InferenceSession(bart.path / "decoder_with_past_model.onnx")
    expected = session.run(["logits"], dict(case.inputs))[0]
    for name in (STATES_MASK, past_name(0, "decoder.value"), past_name(1, "encoder.value")):
        changed = {**case.inputs, name: np.ones_like(case.inputs[name])}
        assert not np.allclose(session.run(["logits"], changed)[0], expected, rtol=1e-3, atol=1e-4), name


def test_t5_with_more_decoder_layers_and_heads_of_another_size(tmp_path: Path) -> None:
    bundle = _export(partial(write_text_model, "t5"), tmp_path, variants=("base", "optimized"))
    assert _verdict(bundle) == "pass"
    shapes = {spec.name: spec.shape for spec in bundle.component("decoder_model").outputs}
    assert shapes["present.2.encoder.key"] == ("batch", 4, "encoder_sequence", 12)
    assert "present.3.encoder.key" not in shapes


def test_whisper_decodes_without_a_mask(tmp_path: Path) -> None:
    bundle = _export(write_whisper, tmp_path)
    encoder, first, _ = bundle.manifest.components.values()
    assert [(spec.name, spec.shape) for spec in encoder.inputs] == [("input_features", ("batch", 8, 100))]
    assert [spec.name for spec in first.inputs] == ["input_ids", STATES]
    assert _verdict(bundle) == "pass"


def test_a_model_that_makes_one_state_of_several_frames_takes_the_mask_of_the_frames(tmp_path: Path) -> None:
    bundle = _export(write_speech_to_text, tmp_path)
    shapes = {spec.name: spec.shape for spec in bundle.component("decoder_model").inputs}
    assert shapes[STATES_MASK] == ("batch", "frames")
    assert shapes[STATES][:2] == ("batch", "encoder_sequence")
    assert _verdict(bundle) == "pass"


def test_an_image_is_read_by_a_decoder_of_another_size(tmp_path: Path) -> None:
    bundle = _export(partial(write_vision_model, "gpt2"), tmp_path)
    assert [spec.shape for spec in bundle.component("encoder_model").outputs] == [("batch", 17, 24)]
    assert _verdict(bundle) == "pass"


def test_caches_that_the_module_confuses_are_seen_by_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph agrees with the module in every case: both take the cross-attention's values for its keys."""
    forward = NextStep.forward

    def confused(
        self: NextStep, input_ids: Tensor, encoder_attention_mask: Tensor, **past: Tensor
    ) -> dict[str, Tensor]:
        other = {"encoder.key": "encoder.value", "encoder.value": "encoder.key"}
        swapped = {
            past_name(layer, other.get(kind, kind)): past[past_name(layer, kind)]
            for layer in (0, 1)
            for kind in ("decoder.key", "decoder.value", *other)
        }
        return forward(self, input_ids, encoder_attention_mask, **swapped)

    monkeypatch.setattr(NextStep, "forward", confused)
    with pytest.raises(VerificationFailed) as failure:
        _export(partial(write_text_model, "bart"), tmp_path)
    assert {check.case for check in failure.value.report.checks if check.verdict == "fail"} == {CASE}


def test_a_graph_that_confuses_its_caches_fails_on_its_cases(bart: Bundle, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bart.path, copy)
    path = copy / "decoder_with_past_model.onnx"
    model = onnx.load(path)
    one, other = past_name(0, "decoder.key"), past_name(0, "decoder.value")
    names = {one: other, other: one}
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            node.input[position] = names.get(name, name)
    onnx.save(model, path)
    report = verify_bundle(load_bundle(copy))
    failed = {(check.id, check.component) for check in report.checks if check.verdict == "fail"}
    assert ("golden.match", "decoder_with_past_model") in failed
    assert not any(id == "golden.match" and component == "decoder_model" for id, component in failed)


def test_a_baked_number_of_states_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = FirstStep.forward

    def baking(self: FirstStep, input_ids: Tensor, encoder_hidden_states: Tensor, **mask: Tensor) -> dict[str, Tensor]:
        length = int(encoder_hidden_states.shape[1])
        return forward(self, input_ids, encoder_hidden_states[:, :length], **mask)

    monkeypatch.setattr(FirstStep, "forward", baking)
    with pytest.raises((EngineError, VerificationFailed)):
        _export(partial(write_text_model, "bart"), tmp_path, suite="quick")


def test_static_axes_reach_the_graphs_that_have_them(bart: Bundle) -> None:
    source = bart.path.parent / "source"
    made = components(_checkpoint(source, static={"batch": 2, "encoder_sequence": 9, "past_decoder_sequence": 4}))
    fixed = {
        name: {axis: size.fixed for axis, size in exportable.axes.items() if size.fixed}
        for name, exportable in made.items()
    }
    assert fixed == {
        "encoder_model": {"batch": 2, "encoder_sequence": 9},
        "decoder_model": {"batch": 2, "encoder_sequence": 9},
        "decoder_with_past_model": {"batch": 2, "past_decoder_sequence": 4, "encoder_sequence": 9},
    }
    further = made["decoder_with_past_model"].cases("standard")
    assert {case.inputs[past_name(0, "decoder.key")].shape[2] for case in further} == {4}
    assert {case.inputs[past_name(0, "encoder.key")].shape[2] for case in further} == {9}


def test_a_fixed_number_of_new_tokens_is_that_of_the_first_step(tmp_path: Path) -> None:
    """A prompt of the task, as Whisper has one; the steps after it take one token, or nothing could be generated."""
    bundle = _export(partial(write_text_model, "bart"), tmp_path, static={"decoder_sequence": 3})
    first, further = (bundle.component(name) for name in ("decoder_model", "decoder_with_past_model"))
    assert first.axes["decoder_sequence"].fixed == 3
    assert further.axes["decoder_sequence"].fixed == 1
    check = next(check for check in bundle.report().checks if check.case == CASE)
    assert (check.verdict, "the first step takes 3 tokens" in check.detail) == ("skip", True)

    model = transformers.BartForConditionalGeneration.from_pretrained(tmp_path / "source").eval()
    ids, told = np.array([[5, 20, 30]]), np.array([[2, 11, 12, 13]])
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    sessions = {name: bundle.session("base", component=name) for name in bundle.manifest.components}
    (states,) = sessions["encoder_model"].run(None, feed)
    made = sessions["decoder_model"].run(
        None, {"input_ids": told[:, :3], STATES: states, STATES_MASK: feed["attention_mask"]}
    )
    present = dict(zip((spec.name for spec in first.outputs), made, strict=True))
    cache = {f"past_key_values{name.removeprefix('present')}": value for name, value in present.items()}
    step = {"input_ids": told[:, 3:], STATES_MASK: feed["attention_mask"], **cache}
    (logits, *_) = sessions["decoder_with_past_model"].run(
        None, {spec.name: step[spec.name] for spec in further.inputs}
    )
    with torch.inference_mode():
        tensors = {name: torch.from_numpy(array) for name, array in feed.items()}
        expected = model(**tensors, decoder_input_ids=torch.from_numpy(told)).logits[:, -1:]
    np.testing.assert_allclose(logits, expected.numpy(), rtol=1e-3, atol=1e-4)


def test_localize_looks_into_the_graph_that_is_named(bart: Bundle, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"variants": ["base"], "suite": "quick"}
    source = str(bart.path.parent / "source")
    with pytest.raises(BundleError, match="say which one"):
        localize(bart, source, HubOptions(), tmp_path / "none", **asked)
    found = localize(bart, source, HubOptions(), tmp_path / "out", component="decoder_with_past_model", **asked)
    assert found.verdict == "agrees"
    layers = {layer.module for layer in found.variants[0].layers}
    assert any("encoder_attn" in name for name in layers)
    assert not any(".encoder.layers" in name for name in layers)


def test_parts_that_are_plain_modules_are_refused(tmp_path: Path) -> None:
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "max_position_embeddings": 64}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    words = {"langs": ["a", "b"], "src_vocab_size": len(VOCABULARY), "tgt_vocab_size": len(VOCABULARY)}
    config = transformers.FSMTConfig(**sizes, **heads, **words)
    randomise(transformers.FSMTForConditionalGeneration(config)).save_pretrained(tmp_path)
    write_tokenizer(tmp_path, token_types=False)
    with pytest.raises(SignatureError, match=r"FSMTForConditionalGeneration .* without a config of their own"):
        load(str(tmp_path), Recipe(), HubOptions())


def test_requests_that_make_no_sense_are_refused(bart: Bundle) -> None:
    source = bart.path.parent / "source"
    with pytest.raises(RecipeError, match="return what generation needs"):
        components(_checkpoint(source, outputs=("hidden_states",)))
    with pytest.raises(RecipeError, match=r"unknown axis 'height'.*past_decoder_sequence"):
        components(_checkpoint(source, static={"height": 3}))
    with pytest.raises(RecipeError, match="one of the decoder"):
        components(_checkpoint(source, axes={"input_ids": ("batch", "decoder_sequence")}))
    checkpoint = _checkpoint(source)
    checkpoint.config.is_encoder_decoder = False
    with pytest.raises(SignatureError, match="no encoder and decoder of its own"):
        divide(checkpoint)
