"""Tiny vision models through the whole flow; all of them are in tests/zoo/vision.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import transformers

from int8_sums import EXACT_INT8_SUMS
from onnxport.exporters import Bundle, export
from onnxport.exporters.cli.app import run
from onnxport.exporters.engines.kept_attributes import kept_attributes
from onnxport.exporters.errors import SignatureError, TaskError
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.tasks import choose_task, task_named
from zoo.vision import ROWS, balance, image_processor

ANY_SIZE = {"pixel_values": ("batch", "channels", "height", "width")}
MODELS = {row.name: row for row in ROWS}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """folder_of("vit image-classification") -> the checkpoint, written once."""
    written: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in written:
            written[name] = tmp_path_factory.mktemp("checkpoint")
            MODELS[name].write(written[name])
        return written[name]

    return folder


@pytest.fixture
def exported(folder_of, tmp_path: Path):
    def run(name: str, **recipe: object) -> Bundle:
        return export(str(folder_of(name)), tmp_path / "out", recipe=Recipe(suite="quick", **recipe))

    return run


def shapes(bundle: Bundle) -> dict[str, tuple[int | str, ...]]:
    component = bundle.manifest.components["model"]
    return {spec.name: spec.shape for spec in (*component.inputs, *component.outputs)}


@pytest.mark.parametrize("name", ["vit image-classification", "resnet image-classification"])
def test_every_variant_of_a_transformer_and_of_a_convolutional_network(exported, name: str) -> None:
    # One of the six decisions of the random ViT that transformers 4 draws is too close for 8 bits.
    exact = EXACT_INT8_SUMS and not transformers.__version__.startswith("4.")
    variants = ("base", "optimized", "fp16", *(["int8"] if exact else []))
    bundle = exported(name, variants=variants)
    assert bundle.manifest.verification.verdict == "pass"
    assert tuple(bundle.manifest.components["model"].variants) == variants
    assert shapes(bundle) == {"pixel_values": ("batch", 3, 32, 32), "logits": ("batch", 5)}
    image = bundle.manifest.preprocessing.image
    assert image is not None
    assert (image.channels, image.height, image.width) == (3, 32, 32)
    assert image.mean is not None
    assert (bundle.path / "preprocessor_config.json").is_file()
    for variant in bundle.manifest.components["model"].variants.values():
        assert not any(op.startswith("com.microsoft.nchwc") for op in variant.ops)  # would tie it to this machine


def test_a_class_for_each_pixel(exported) -> None:
    bundle = exported("segformer image-segmentation", task="semantic-segmentation", variants=("base",))
    assert bundle.manifest.source.task == "image-segmentation"
    assert shapes(bundle)["logits"] == ("batch", 5, 16, 16)
    assert bundle.manifest.components["model"].decisions == {"logits": 1}


def test_boxes_and_a_mask_of_pixels(exported) -> None:
    bundle = exported("detr object-detection", variants=("base",))
    assert shapes(bundle) == {
        "pixel_values": ("batch", 3, 64, 64),
        "pixel_mask": ("batch", 64, 64),
        "logits": ("batch", 6, 6),
        "pred_boxes": ("batch", 6, 4),
    }


def test_windows_are_clamped_in_the_trace_alone(exported) -> None:
    bundle = exported("swin image-classification", variants=("base",))
    assert bundle.manifest.components["model"].engine == "torchscript"
    assert bundle.manifest.verification.verdict == "pass"


def test_masked_patches(exported) -> None:
    bundle = exported("vit masked-im", variants=("base",))
    assert shapes(bundle) == {
        "pixel_values": ("batch", 3, 32, 32),
        "bool_masked_pos": ("batch", 16),
        "reconstruction": ("batch", 3, 32, 32),
    }


def test_images_of_any_size(exported) -> None:
    bundle = exported("vit image-classification", variants=("base",), axes=ANY_SIZE)
    assert shapes(bundle)["pixel_values"] == ("batch", 3, "height", "width")
    axes = bundle.manifest.components["model"].axes
    assert len(axes["height"].proven) > 1
    assert len(axes["width"].proven) > 1


def test_a_graph_in_half_precision_takes_images_in_half_precision(exported) -> None:
    bundle = exported("vit image-classification", variants=("base",), dtype="float16")
    (pixels,) = bundle.manifest.components["model"].inputs
    assert pixels.dtype == "float16"


def test_a_checkpoint_in_half_precision_is_loaded_in_float32(folder_of, tmp_path: Path) -> None:
    source = folder_of("resnet image-classification")
    model = transformers.AutoModelForImageClassification.from_pretrained(source).half()
    model.save_pretrained(tmp_path / "half")
    image_processor("ConvNext")(size={"shortest_edge": 32}).save_pretrained(tmp_path / "half")
    recipe = Recipe(suite="quick", variants=("base",))
    bundle = export(str(tmp_path / "half"), tmp_path / "out", recipe=recipe)
    assert bundle.manifest.components["model"].inputs[0].dtype == "float32"
    assert bundle.manifest.components["model"].variants["base"].precision == "float32"


class TestRefusals:
    def test_a_processor_of_another_model_is_told_without_a_traceback(
        self, folder_of, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = _copied(folder_of("vit image-classification"), tmp_path / "checkpoint")
        image_processor("ViT")(size={"height": 64, "width": 64}).save_pretrained(folder)
        assert run(["export", str(folder), str(tmp_path / "out")]) == 2
        told = capsys.readouterr().err
        assert "makes images of 64x64 pixels, the model takes 32x32" in " ".join(told.split())
        assert "Traceback" not in told
        assert not (tmp_path / "out").exists()

    def test_a_processor_that_cannot_be_loaded(
        self, folder_of, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = _copied(folder_of("vit image-classification"), tmp_path / "checkpoint")
        (folder / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": "NoSuchProcessor"}))
        assert run(["export", str(folder), str(tmp_path / "out")]) == 2
        told = capsys.readouterr().err
        assert "cannot be loaded" in told
        assert "Traceback" not in told

    def test_any_size_of_a_model_that_knows_one(self, tmp_path: Path) -> None:
        sizes = {"hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 2, 2], "depths": [1, 1, 1]}
        config = transformers.LevitConfig(image_size=64, key_dim=[8, 8, 8], **sizes)
        balance(transformers.LevitForImageClassification(config)).save_pretrained(tmp_path / "levit")
        with pytest.raises(SignatureError, match=r"LevitForImageClassification itself fails .*--static"):
            export(str(tmp_path / "levit"), tmp_path / "out", recipe=Recipe(suite="quick", axes=ANY_SIZE))


class TestTasks:
    @pytest.mark.parametrize(
        ("called", "name"),
        [
            ("semantic-segmentation", "image-segmentation"),
            ("instance-segmentation", "image-segmentation"),
            ("image-feature-extraction", "feature-extraction"),
            ("masked-image-modeling", "masked-im"),
        ],
    )
    def test_names_that_people_use(self, called: str, name: str) -> None:
        assert task_named(called).name == name

    def test_what_a_kind_of_model_returns(self, tmp_path: Path) -> None:
        segformer = transformers.SegformerConfig(architectures=["SegformerForSemanticSegmentation"])
        task, head = choose_task(None, segformer, tmp_path)
        assert (task.name, task.outputs, task.decisions) == ("image-segmentation", ("logits",), {"logits": 1})
        assert head.auto_class == "AutoModelForSemanticSegmentation"
        maskformer = transformers.MaskFormerConfig(architectures=["MaskFormerForInstanceSegmentation"])
        task, _ = choose_task("instance-segmentation", maskformer, tmp_path)
        assert task.outputs == ("class_queries_logits", "masks_queries_logits")
        assert task.decisions == {"class_queries_logits": -1}

    def test_a_task_that_does_not_fit(self, tmp_path: Path) -> None:
        with pytest.raises(TaskError, match=r"what fits: .*image-classification"):
            choose_task("depth-estimation", transformers.ResNetConfig(), tmp_path)


def test_a_trace_leaves_the_module_as_it_was() -> None:
    swin = transformers.SwinConfig(image_size=32, patch_size=4, embed_dim=16, depths=[1], num_heads=[2], window_size=8)
    model = transformers.SwinModel(swin).eval()
    layer = model.encoder.layers[0].blocks[0]
    index = next((m.relative_position_index, m) for m in model.modules() if hasattr(m, "relative_position_index"))
    with kept_attributes(model):
        layer.window_size, layer.traced, model.training = "a traced tensor", 1, True
        index[1].relative_position_index = index[0] + 1
        index[1].register_buffer("cached", index[0])
    assert layer.window_size == 8
    assert index[1].relative_position_index is index[0]
    assert not hasattr(index[1], "cached")
    assert not hasattr(layer, "traced")
    assert not model.training


def _copied(source: Path, target: Path) -> Path:
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target
