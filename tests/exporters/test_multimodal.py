"""Models that read more than one kind of input, and models that `--split` divides."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from onnxport.exporters import Bundle, Recipe, export, load_bundle
from onnxport.exporters.checkpoint import Checkpoint, load_checkpoint
from onnxport.exporters.cli.app import run
from onnxport.exporters.components import split
from onnxport.exporters.errors import RecipeError, SignatureError
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.inputs import make_inputs
from onnxport.exporters.inputs.combined import CombinedInputs
from onnxport.exporters.inputs.layout import LayoutInputs
from onnxport.exporters.inputs.prompts import LABELS, PADDING, POINTS, PromptInputs
from onnxport.exporters.source import find_folder
from onnxport.verify.contract import AxisRange
from zoo.multimodal import ROWS
from zoo.vision import image_processor

Write = Callable[[str], Path]
Open = Callable[..., Checkpoint]

QUICK = Recipe(suite="quick", variants=("base",))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """folder("clip feature-extraction") -> the checkpoint of that row, written once."""
    written: dict[str, Path] = {}

    def write(name: str) -> Path:
        if name not in written:
            row = next(row for row in ROWS if row.name == name)
            written[name] = tmp_path_factory.mktemp(row.architecture)
            row.write(written[name])
        return written[name]

    return write


@pytest.fixture(scope="module")
def opened(folder: Write) -> Open:
    """opened("clip feature-extraction", static={...}) -> the checkpoint in memory."""

    def load(name: str, **recipe: Any) -> Checkpoint:
        return load_checkpoint(find_folder(str(folder(name)), HubOptions()), Recipe(**recipe), HubOptions())

    return load


def _reference(model: Any, arrays: dict[str, np.ndarray]) -> Any:
    with torch.inference_mode():
        return model.eval()(**{name: torch.from_numpy(array) for name, array in arrays.items()})


def _shapes(bundle: Bundle, component: str = "model") -> dict[str, tuple[int | str, ...]]:
    entry = bundle.component(component)
    return {spec.name: spec.shape for spec in (*entry.inputs, *entry.outputs)}


CLIP = "clip zero-shot-image-classification"


def test_a_dual_encoder_compares_any_number_of_texts_with_any_number_of_images(folder: Write, tmp_path: Path) -> None:
    bundle = export(folder(CLIP), tmp_path / "out", recipe=QUICK)
    assert bundle.manifest.source.task == "zero-shot-image-classification"
    assert _shapes(bundle) == {
        "input_ids": ("text_batch", "sequence"),
        "pixel_values": ("image_batch", 3, 32, 32),
        "attention_mask": ("text_batch", "sequence"),
        "logits_per_image": ("image_batch", "text_batch"),
        "logits_per_text": ("text_batch", "image_batch"),
        "text_embeds": ("text_batch", 24),
        "image_embeds": ("image_batch", 24),
    }
    assert bundle.component().decisions == {"logits_per_image": -1}
    assert bundle.manifest.preprocessing.labels is None  # they come with every call
    assert bundle.manifest.preprocessing.max_length == 64
    assert bundle.manifest.preprocessing.image is not None

    processors = [
        transformers.AutoTokenizer.from_pretrained(folder(CLIP)),
        transformers.CLIPImageProcessor.from_pretrained(folder(CLIP)),
    ]
    texts = processors[0](
        ["a meeting", "the graph was in the runtime", "who", "same", "and"], padding=True, return_tensors="np"
    )
    picture = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    pixels = processors[1](images=[picture, picture[::-1]], return_tensors="np")
    feed = {**texts, **pixels}
    expected = _reference(transformers.CLIPModel.from_pretrained(folder(CLIP)), feed)
    (logits,) = bundle.session("base").run(["logits_per_image"], dict(feed))
    assert logits.shape == (2, 5)
    np.testing.assert_allclose(logits, expected.logits_per_image.numpy(), rtol=1e-3, atol=1e-4)


def test_images_of_any_size_reach_a_dual_encoder(folder: Write, tmp_path: Path) -> None:
    recipe = Recipe(suite="quick", variants=("base",), axes={"pixel_values": ("image_batch", 3, "height", "width")})
    bundle = export(folder(CLIP), tmp_path / "out", recipe=recipe)
    assert _shapes(bundle)["pixel_values"] == ("image_batch", 3, "height", "width")
    ids = np.array([[2, 40, 3]])
    pixels = np.random.default_rng(0).standard_normal((2, 3, 48, 40), dtype=np.float32)
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "pixel_values": pixels}
    model = transformers.CLIPModel.from_pretrained(folder(CLIP)).eval()
    with torch.inference_mode():
        tensors = {name: torch.from_numpy(array) for name, array in feed.items()}
        expected = model(**tensors, interpolate_pos_encoding=True).image_embeds
    (embeds,) = bundle.session("base").run(["image_embeds"], feed)
    np.testing.assert_allclose(embeds, expected.numpy(), rtol=1e-3, atol=1e-4)


def _with_larger_images(folder: Path, target: Path) -> Path:
    """The checkpoint, whose processor makes images of 48x48 pixels where the model takes 32x32."""
    shutil.copytree(folder, target)
    size = {"height": 48, "width": 48}
    image_processor("CLIP")(size={"shortest_edge": 48}, crop_size=size).save_pretrained(target)
    return target


@pytest.mark.parametrize("split", [False, True])
def test_what_is_said_of_a_processor_of_another_size_works(
    folder: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], split: bool
) -> None:
    source = _with_larger_images(folder(CLIP), tmp_path / "source")
    command = ["export", str(source), str(tmp_path / "out"), "--suite", "quick", "--variant", "base"]
    command += ["--split"] if split else []
    assert run(command) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "makes images of 48x48 pixels, the model takes 32x32" in told
    (advice,) = re.findall(r"interpolated to these images: (--static height=48 --static width=48)$", told)
    assert run([*command, *advice.split()]) == 0
    bundle = load_bundle(tmp_path / "out")
    component = "vision_model" if split else "model"
    assert _shapes(bundle, component)["pixel_values"][1:] == (3, 48, 48)
    pixels = np.random.default_rng(0).standard_normal((2, 3, 48, 48), dtype=np.float32)
    model = transformers.CLIPModel.from_pretrained(source).eval()
    with torch.inference_mode():
        expected = model.get_image_features(torch.from_numpy(pixels), interpolate_pos_encoding=True)
    expected = getattr(expected, "pooler_output", expected).numpy()
    feed = {"pixel_values": pixels}
    if not split:
        expected = expected / np.linalg.norm(expected, axis=-1, keepdims=True)
        feed |= {"input_ids": np.array([[2, 40, 3]]), "attention_mask": np.ones((1, 3), dtype=np.int64)}
    (embeds,) = bundle.session("base", component=component).run(["image_embeds"], feed)
    np.testing.assert_allclose(embeds, expected, rtol=1e-3, atol=1e-4)


def test_sizes_and_names_of_images_reach_a_dual_encoder_together(folder: Write, tmp_path: Path) -> None:
    source = _with_larger_images(folder(CLIP), tmp_path / "source")

    def made(**recipe: Any) -> CombinedInputs:
        found = load_checkpoint(find_folder(str(source), HubOptions()), Recipe(**recipe), HubOptions())
        maker = make_inputs(found)
        assert isinstance(maker, CombinedInputs)
        return maker

    named = made(axes={"pixel_values": ("pictures", 3, 48, 48), "input_ids": ("texts", "tokens")})
    assert named.inputs["pixel_values"] == ("pictures", 3, 48, 48)
    assert named.inputs["input_ids"] == ("texts", "tokens")
    assert named.options == {"interpolate_pos_encoding": True}
    fixed = made(axes={"pixel_values": (2, 3, "height", "width")}, static={"width": 64, "sequence": 9})
    assert fixed.inputs["pixel_values"] == ("image_batch", 3, "height", 64)
    assert fixed.axes["image_batch"].fixed == 2
    assert fixed.axes["sequence"].fixed == 9
    with pytest.raises(RecipeError, match="unknown axis 'depth'"):
        made(static={"depth": 3, "height": 48})


def test_split_gives_the_towers_their_own_graphs(folder: Write, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ["--split", "--suite", "quick", "--variant", "base", "--static", "sequence=16", "--quiet"]
    assert run(["export", str(folder(CLIP)), str(out), *flags]) == 0
    bundle = load_bundle(out)
    assert sorted(path.name for path in out.glob("*.onnx")) == ["text_model.onnx", "vision_model.onnx"]
    assert _shapes(bundle, "text_model") == {
        "input_ids": ("batch", "sequence"),
        "attention_mask": ("batch", "sequence"),
        "text_embeds": ("batch", 24),
    }
    assert bundle.component("text_model").axes["sequence"].fixed == 16
    assert _shapes(bundle, "vision_model") == {"pixel_values": ("batch", 3, 32, 32), "image_embeds": ("batch", 24)}
    projected = transformers.CLIPTextModelWithProjection.from_pretrained(folder(CLIP))
    ids = np.array([[2, *range(10, 23), 3, 0], [2, 40, 3, *[0] * 13]])
    feed = {"input_ids": ids, "attention_mask": (ids != 0).astype(np.int64)}
    (embeds,) = bundle.session("base", component="text_model").run(["text_embeds"], feed)
    # Not normalised: as transformers' own class of this tower gives them.
    np.testing.assert_allclose(embeds, _reference(projected, feed).text_embeds.numpy(), rtol=1e-3, atol=1e-4)
    assert not np.allclose(np.linalg.norm(embeds, axis=-1), 1)


def test_an_output_that_a_dual_encoder_keeps_to_its_towers_is_refused(
    folder: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", str(folder(CLIP)), str(tmp_path / "out"), "--output", "hidden_states"]) == 2
    told = capsys.readouterr().err
    assert "--output hidden_states: the model returns no such output; leave it out" in told
    assert "Traceback" not in told


def test_a_split_of_one_tower_is_refused(folder: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run(["export", str(folder("layoutlm token-classification")), str(out), "--split"]) == 2
    told = capsys.readouterr().err
    assert "LayoutLMForTokenClassification is neither: leave it out" in told
    assert "Traceback" not in told
    assert not out.exists()


def test_cases_of_both_kinds_go_together(opened: Open) -> None:
    maker = make_inputs(opened(CLIP))
    assert isinstance(maker, CombinedInputs)
    assert maker.example == {"text_batch": 2, "sequence": 11, "image_batch": 3}
    cases = {case.name: case for case in maker.cases("standard")}
    text, image = (part.maker.cases("standard") for part in maker.parts)
    ids = [case.inputs["input_ids"].tobytes() for case in cases.values()]
    pixels = [case.inputs["pixel_values"].tobytes() for case in cases.values()]
    assert {case.inputs["input_ids"].tobytes() for case in text} == set(ids)
    assert {case.inputs["pixel_values"].tobytes() for case in image} == set(pixels)
    assert {"padding.left", "padding.right", "padding.interleaved", "text", "random.1x1"} <= set(cases)
    assert any(len(case.inputs["input_ids"]) != len(case.inputs["pixel_values"]) for case in cases.values())


def test_texts_end_where_the_model_reads_them_off(opened: Open) -> None:
    maker = make_inputs(opened(CLIP))
    drawn = maker.sample({"text_batch": 50, "sequence": 9, "image_batch": 2}, np.random.default_rng(0))["input_ids"]
    assert (drawn[:, -1] == 3).all()
    assert not np.isin(drawn[:, :-1], [0, 3]).any()
    for case in maker.cases("quick"):
        ids, mask = case.inputs["input_ids"], case.inputs["attention_mask"]
        if case.name.startswith(("random", "padding")):
            last = mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)
            assert (ids[np.arange(len(ids)), last] == 3).all(), case.name


def test_axes_of_the_recipe_reach_the_kind_that_has_them(opened: Open) -> None:
    named = make_inputs(opened(CLIP, axes={"input_ids": ("texts", "tokens")}, static={"batch": 2, "tokens": 8}))
    assert named.inputs["attention_mask"] == ("texts", "tokens")
    assert named.inputs["pixel_values"][0] == "batch"
    assert named.axes["tokens"] == AxisRange(min=8, max=8)
    assert named.axes["batch"] == AxisRange(min=2, max=2)
    assert {case.inputs["pixel_values"].shape[0] for case in named.cases("quick")} == {2}
    both = make_inputs(opened("layoutlmv3 token-classification", axes={"pixel_values": ("pages", 3, 32, 32)}))
    assert {dims[0] for dims in both.inputs.values()} == {"pages"}
    with pytest.raises(RecipeError, match=r"unknown axis 'batch': expected .*text_batch.*image_batch"):
        make_inputs(opened(CLIP, static={"batch": 2}))
    with pytest.raises(RecipeError, match="unknown input 'pixels'"):
        make_inputs(opened(CLIP, axes={"pixels": ("batch", 3, 32, 32)}))
    with pytest.raises(RecipeError, match="unknown axis 'text_batch'"):
        split(opened(CLIP, static={"text_batch": 2}, split=True))


def test_kinds_that_do_not_go_together_are_refused(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = opened(CLIP)

    def broken(*args: object, **inputs: object) -> None:
        raise ValueError("no such thing")

    monkeypatch.setattr(checkpoint.model.vision_model, "forward", broken)
    with pytest.raises(SignatureError, match=r"runs on no combination of text and image .*no such thing"):
        make_inputs(checkpoint)


def test_queries_belong_to_one_image(folder: Write, tmp_path: Path) -> None:
    bundle = export(folder("owlvit zero-shot-object-detection"), tmp_path / "out", recipe=QUICK)
    shapes = _shapes(bundle)
    assert shapes["logits"] == (1, 16, "text_batch")
    assert shapes["pred_boxes"] == (1, 16, 4)
    assert bundle.component().axes["image_batch"].fixed == 1


def test_a_page_is_tokens_with_boxes(opened: Open) -> None:
    maker = make_inputs(opened("layoutlm token-classification"))
    assert isinstance(maker, LayoutInputs)
    assert list(maker.inputs) == ["input_ids", "bbox", "attention_mask", "token_type_ids"]
    cases = {case.name: case.inputs for case in maker.cases("standard")}
    assert {"boxes.page", "boxes.corners", "text", "padding.left"} <= set(cases)
    for name, inputs in cases.items():
        left, top, right, bottom = np.moveaxis(inputs["bbox"], -1, 0)
        assert inputs["bbox"].dtype == np.int64, name
        assert inputs["bbox"].min() >= 0, name
        assert inputs["bbox"].max() <= 1000, name
        assert (left <= right).all(), name
        assert (top <= bottom).all(), name
        assert not inputs["bbox"][inputs["attention_mask"] == 0].any(), name
    text = cases["text"]
    lines = text["bbox"][0, : text["attention_mask"][0].sum()][1:-1]
    assert len(lines) > 20
    assert (np.diff(lines[:, 1]) >= 0).all()  # down the page
    assert len(np.unique(lines, axis=0)) == len(lines)


@pytest.mark.parametrize("name", ["layoutlm document-question-answering", "layoutlmv3 token-classification"])
def test_documents(folder: Write, tmp_path: Path, name: str) -> None:
    bundle = export(folder(name), tmp_path / "out", recipe=QUICK)
    assert bundle.manifest.source.task == name.split()[1]
    shapes = _shapes(bundle)
    assert shapes["bbox"] == ("batch", "sequence", 4)
    if "v3" in name:
        assert shapes["pixel_values"] == ("batch", 3, 32, 32)
        assert shapes["logits"] == ("batch", "sequence", 2)
    else:
        assert shapes["start_logits"] == shapes["end_logits"] == ("batch", "sequence")


SAM = "sam mask-generation"


def test_prompts(opened: Open) -> None:
    maker = make_inputs(opened(SAM))
    assert isinstance(maker, CombinedInputs)
    assert isinstance(maker.parts[1].maker, PromptInputs)
    assert maker.inputs[POINTS] == ("batch", "point_batch", "points", 2)
    cases = {case.name: case.inputs for case in maker.cases("standard")}
    assert {len(inputs[POINTS]) == len(inputs["pixel_values"]) for inputs in cases.values()} == {True}
    padded = cases["labels.padded"]
    assert (padded[LABELS] == PADDING).any(axis=(1, 2)).tolist() == [False, True, True]
    assert (padded[POINTS][padded[LABELS] == PADDING] == PADDING).all()
    drawn = maker.sample(maker.example, np.random.default_rng(0))
    assert drawn[POINTS].min() >= 0
    assert drawn[POINTS].max() <= 32


def test_sam_in_two_halves_computes_what_it_does_as_a_whole(folder: Write, tmp_path: Path) -> None:
    recipe = QUICK.model_copy(update={"split": True})
    bundle = export(folder(SAM), tmp_path / "out", recipe=recipe)
    assert list(bundle.manifest.components) == ["vision_encoder", "prompt_encoder_mask_decoder"]
    rng = np.random.default_rng(0)
    pixels = rng.normal(size=(2, 3, 32, 32)).astype(np.float32)
    prompts = {POINTS: rng.random((2, 3, 2, 2)).astype(np.float32) * 32, LABELS: rng.integers(0, 2, (2, 3, 2))}
    names = ("image_embeddings", "image_positional_embeddings")
    seen = bundle.session("base", component="vision_encoder").run(names, {"pixel_values": pixels})
    feed = {**dict(zip(names, seen, strict=True)), **prompts}
    scores, masks = bundle.session("base", component="prompt_encoder_mask_decoder").run(
        ["iou_scores", "pred_masks"], feed
    )
    expected = _reference(transformers.SamModel.from_pretrained(folder(SAM)), {"pixel_values": pixels, **prompts})
    np.testing.assert_allclose(scores, expected.iou_scores.numpy(), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(masks, expected.pred_masks.numpy(), rtol=1e-3, atol=1e-4)


VILT = "vilt visual-question-answering"


def test_questions_about_images(folder: Write, tmp_path: Path) -> None:
    bundle = export(folder(VILT), tmp_path / "out", recipe=Recipe(suite="standard", variants=("base",)))
    assert bundle.manifest.source.task == "visual-question-answering"
    assert bundle.component().decisions == {"logits": -1}
    assert _shapes(bundle)["pixel_values"] == ("batch", 3, 32, 32)
    assert _shapes(bundle)["logits"] == ("batch", 5)

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder(VILT))
    processor = transformers.AutoImageProcessor.from_pretrained(folder(VILT))
    picture = np.random.default_rng(0).integers(0, 256, (60, 60, 3), dtype=np.uint8)
    # A row of which a part is padding, as the processor pads the smaller of two pictures.
    pixels = dict(processor(images=[picture, picture[::-1], picture.T.reshape(60, 60, 3)], return_tensors="np"))
    pixels["pixel_mask"][1, 16:] = 0
    texts = tokenizer(["who won", "was the graph in the runtime", "and"], padding=True, return_tensors="np")
    feed = {name: np.asarray(array) for name, array in {**texts, **pixels}.items()}
    expected = _reference(transformers.ViltForQuestionAnswering.from_pretrained(folder(VILT)), feed).logits
    (logits,) = bundle.session("base").run(
        ["logits"], {spec.name: feed[spec.name] for spec in bundle.component().inputs}
    )
    np.testing.assert_allclose(logits, expected.numpy(), rtol=1e-3, atol=1e-4)
