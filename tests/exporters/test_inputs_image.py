from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from onnxport.exporters.errors import RecipeError, SignatureError, SourceError
from onnxport.exporters.inputs.image import ImageInputs, image_inputs
from onnxport.exporters.manifest import ImagePreprocessing
from onnxport.exporters.preprocessing import Processors, load_image_processor
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.tasks import TASKS
from zoo.vision import image_processor

ANY_SIZE = {"pixel_values": ("batch", "channels", "height", "width")}
VIT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "patch_size": 8}


def square(size: int) -> dict[str, int]:
    return {"height": size, "width": size}


@pytest.fixture
def maker():
    """maker(processor, image_size=32, **recipe) -> the inputs of a tiny ViT."""

    def make(
        processor: object | None = None,
        *,
        task: str = "image-classification",
        model: torch.nn.Module | None = None,
        image_size: object = 32,
        dtype: torch.dtype = torch.float32,
        **recipe: object,
    ) -> ImageInputs:
        if model is None:
            config = transformers.ViTConfig(**{**VIT, "image_size": image_size, "encoder_stride": 8})
            heads = {"masked-im": "ViTForMaskedImageModeling"}
            model = getattr(transformers, heads.get(task, "ViTForImageClassification"))(config).eval()
        return image_inputs(
            SimpleNamespace(
                model=model, config=model.config, task=TASKS[task], recipe=Recipe(**recipe), dtype=dtype,
                processors=Processors(image_processor=processor),
            )  # type: ignore[arg-type]
        )  # fmt: skip

    return make


class TestCases:
    def test_a_case_is_the_same_in_every_suite(self, maker) -> None:
        vit = maker(image_processor("ViT")(size=square(32)))
        quick, standard, full = ({c.name: c for c in vit.cases(suite)} for suite in ("quick", "standard", "full"))
        assert set(quick) < set(standard) < set(full)
        for smaller, larger in ((quick, standard), (standard, full)):
            for name, case in smaller.items():
                assert all(np.array_equal(array, larger[name].inputs[key]) for key, array in case.inputs.items())

    def test_the_protocol(self, maker) -> None:
        processor = image_processor("ViT")(size=square(32))
        vit = maker(processor)
        cases = {case.name: case.inputs["pixel_values"] for case in vit.cases("standard")}
        assert set(cases) == {
            "random.1x3x32x32", "random.3x3x32x32", "random.4x3x32x32", "image.gradient", "image.noise", "image.black",
            "image.white", "image.colour", "image.wide", "image.tall", "pixels.zeros", "pixels.negative",
            "pixels.bounds",
        }  # fmt: skip
        assert {"random.8x3x32x32", "image.batch"} <= {case.name for case in vit.cases("full")}
        assert all(len(pixels) != vit.example["batch"] for pixels in cases.values())
        assert all(pixels.shape[1:] == (3, 32, 32) and pixels.dtype == np.float32 for pixels in cases.values())
        assert all(np.abs(pixels).max() <= 1 for pixels in cases.values())  # mean and std are 0.5
        assert (cases["image.black"] == -1).all()
        assert (cases["image.white"] == 1).all()
        assert not cases["pixels.zeros"].any()
        assert cases["pixels.negative"].max() <= 0
        assert set(cases["pixels.bounds"].flat) == {-1, 1}
        assert not np.array_equal(cases["image.wide"], cases["image.tall"])

    def test_pictures_go_through_the_processor(self, maker) -> None:
        settings = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 1.0, 2.0]}
        cases = {
            case.name: case.inputs for case in maker(image_processor("ViT")(size=square(32), **settings)).cases("quick")
        }
        ramp = cases["image.gradient"]["pixel_values"][0]
        assert np.allclose(ramp[0, :, 0], -0.2, atol=0.05)  # red is 0 at the left edge
        assert np.allclose(ramp[1, -1, :], 0.8, atol=0.05)  # green is 255 at the bottom
        assert (np.diff(ramp[2, 0, :]) <= 0).all()

    def test_random_pixels_are_in_the_range_of_each_channel(self, maker) -> None:
        vit = maker(image_processor("ViT")(size=square(32), image_mean=[0.0, 0.5, 1.0], image_std=[1.0, 0.5, 2.0]))
        pixels = vit.sample({"batch": 5}, np.random.default_rng(0))["pixel_values"]
        for channel, (low, high) in enumerate(((0, 1), (-1, 1), (-0.5, 0))):
            assert low <= pixels[:, channel].min() < low + 0.05
            assert high - 0.05 < pixels[:, channel].max() <= high

    def test_half_precision_has_images_of_its_own_dtype(self, maker) -> None:
        vit = maker(image_processor("ViT")(size=square(32)), dtype=torch.float16)
        assert {case.inputs["pixel_values"].dtype for case in vit.cases("full")} == {np.dtype("float16")}

    def test_a_fixed_batch(self, maker) -> None:
        vit = maker(image_processor("ViT")(size=square(32)), static={"batch": 3})
        assert {len(case.inputs["pixel_values"]) for case in vit.cases("full")} == {3}
        assert vit.axes["batch"].fixed == 3

    def test_large_images_come_in_small_batches(self, maker) -> None:
        processor = image_processor("ViT")(size=square(1024))
        cases = maker(processor, image_size=1024).cases("full")
        assert max(len(case.inputs["pixel_values"]) for case in cases if case.name.startswith("random")) == 3

    def test_masked_patches(self, maker) -> None:
        vit = maker(image_processor("ViT")(size=square(32)), task="masked-im")
        assert vit.inputs["bool_masked_pos"] == ("batch", 16)
        masks = [case.inputs["bool_masked_pos"] for case in vit.cases("standard")]
        assert all(mask.dtype == bool for mask in masks)
        assert any(0 < mask.mean() < 1 for mask in masks)

    def test_masked_pixels(self, maker) -> None:
        processor = image_processor("Detr")(size={"shortest_edge": 32, "longest_edge": 64})
        detr = maker(processor, model=_Detector())
        assert detr.inputs == {"pixel_values": ("batch", 3, 32, 32), "pixel_mask": ("batch", 32, 32)}
        cases = {case.name: case.inputs for case in detr.cases("standard")}
        mask = cases["padding.mixed"]["pixel_mask"]
        assert mask.dtype == np.int64
        assert 0 < mask[0].mean() < 1
        assert 0 < mask[2].mean() < 1
        assert mask[1].all()
        assert not (cases["padding.mixed"]["pixel_values"] * (1 - mask[:, None])).any()
        assert any("--axes" in note for note in detr.notes)

    def test_pictures_that_are_padded_to_the_size(self, maker) -> None:
        swin2sr = maker(image_processor("Swin2SR")(), model=_Detector(image_size=32))
        assert swin2sr.inputs == {"pixel_values": ("batch", 3, 40, 40)}
        cases = {case.name: case.inputs["pixel_values"] for case in swin2sr.cases("standard")}
        assert {"image.wide", "image.tall"} <= set(cases)
        assert {pixels.shape[2:] for pixels in cases.values()} == {(40, 40)}


class TestSizes:
    def test_without_a_processor_the_config_tells(self, maker) -> None:
        vit = maker(image_size=[32, 48])
        assert vit.inputs == {"pixel_values": ("batch", 3, 32, 48)}
        assert vit.notes == ("the checkpoint has no image processor: images are random, of 32x48 pixels",)
        assert vit.preprocessing.image is None

    def test_nothing_tells(self, maker) -> None:
        resnet = transformers.ResNetForImageClassification(_resnet())
        with pytest.raises(SignatureError, match=r"nothing tells the size .* --static height=224 --static width=224"):
            maker(model=resnet)
        asked = maker(model=resnet, static={"height": 64, "width": 96})
        assert asked.inputs == {"pixel_values": ("batch", 3, 64, 96)}

    def test_dynamic_sizes(self, maker) -> None:
        vit = maker(image_processor("ViT")(size=square(32)), axes=ANY_SIZE)
        assert vit.inputs == {"pixel_values": ("batch", 3, "height", "width")}
        assert len({vit.example[axis] for axis in ("batch", "height", "width")}) == 3
        sizes = {case.inputs["pixel_values"].shape[2:] for case in vit.cases("quick")}
        assert {height for height, _ in sizes} - {vit.example["height"]}
        assert {width for _, width in sizes} - {vit.example["width"]}
        assert vit.options == {"interpolate_pos_encoding": True}

    def test_dynamic_sizes_as_the_processor_makes_them(self, maker) -> None:
        processor = image_processor("Detr")(size={"shortest_edge": 32, "longest_edge": 64})
        cases = {
            c.name: c.inputs["pixel_values"]
            for c in maker(processor, model=_Detector(), axes=ANY_SIZE).cases("standard")
        }
        assert cases["image.wide"].shape == (1, 3, 32, 48)
        assert cases["image.tall"].shape == (1, 3, 64, 32)

    def test_a_name_for_the_batch_axis_alone(self, maker) -> None:
        axes = {"pixel_values": ("images", 3, 32, 32)}
        vit = maker(image_processor("ViT")(size=square(32)), axes=axes)
        assert vit.inputs == {"pixel_values": ("images", 3, 32, 32)}
        assert vit.options == {}

    def test_a_size_that_was_asked_for_is_interpolated(self, maker) -> None:
        vit = maker(image_processor("ViT")(size=square(32)), static={"height": 48, "width": 64})
        assert vit.inputs == {"pixel_values": ("batch", 3, 48, 64)}
        assert vit.options == {"interpolate_pos_encoding": True}
        assert {case.inputs["pixel_values"].shape[2:] for case in vit.cases("standard")} == {(48, 64)}

    @pytest.mark.parametrize(
        ("recipe", "told"),
        [
            ({"axes": {"pixels": ("batch", 3, 32, 32)}}, "unknown input 'pixels'"),
            ({"axes": {"pixel_values": ("batch", 32, 32)}}, "3 axes; it has 4"),
            ({"axes": {"pixel_values": ("batch", 1, 32, 32)}}, "1 channels; the model takes 3"),
            ({"axes": {"pixel_values": ("batch", 3, "side", "side")}}, "same name"),
            ({"static": {"depth": 3}}, "unknown axis 'depth'"),
        ],
    )
    def test_axes_that_do_not_fit(self, maker, recipe: dict[str, object], told: str) -> None:
        with pytest.raises(RecipeError, match=told):
            maker(image_processor("ViT")(size=square(32)), **recipe)

    def test_dynamic_sizes_with_masked_patches(self, maker) -> None:
        with pytest.raises(RecipeError, match="masked-im"):
            maker(image_processor("ViT")(size=square(32)), task="masked-im", axes=ANY_SIZE)


class TestProcessorsThatDoNotFit:
    def test_another_size(self, maker) -> None:
        with pytest.raises(
            SourceError, match=r"makes images of 64x64 pixels, the model takes 32x32 .*preprocessor_config"
        ):
            maker(image_processor("ViT")(size=square(64)))

    def test_another_size_that_the_model_takes_all_the_same(self, maker) -> None:
        swin = transformers.SwinForImageClassification(
            transformers.SwinConfig(image_size=32, patch_size=4, embed_dim=16, depths=[1], num_heads=[2], window_size=4)
        ).eval()
        assert maker(image_processor("ViT")(size=square(64)), model=swin).inputs["pixel_values"][2:] == (64, 64)

    def test_no_multiple_of_the_patches(self, maker) -> None:
        with pytest.raises(SourceError, match="no multiple of the model's patches of 8x8"):
            maker(image_processor("ViT")(size=square(36)), image_size=36)

    def test_no_multiple_of_patches_that_are_padded(self, maker) -> None:
        swin = transformers.SwinForImageClassification(
            transformers.SwinConfig(image_size=34, patch_size=4, embed_dim=16, depths=[1], num_heads=[2], window_size=4)
        ).eval()
        assert maker(image_processor("ViT")(size=square(34)), model=swin).inputs["pixel_values"][2:] == (34, 34)

    def test_other_channels(self, maker) -> None:
        config = transformers.ViTConfig(**VIT, image_size=32, num_channels=1)
        model = transformers.ViTForImageClassification(config).eval()
        with pytest.raises(SourceError, match="3 channels, the model takes 1"):
            maker(image_processor("ViT")(size=square(32)), model=model)

    def test_one_that_fails(self, maker) -> None:
        with pytest.raises(SourceError, match=r"ViTImageProcessor\w* fails on a picture .*mend preprocessor_config"):
            maker(image_processor("ViT")(size=square(32), image_mean=[0.5, 0.5]))

    def test_one_that_makes_everything_alike(self, maker) -> None:
        with pytest.raises(SourceError, match="maps black to"):
            maker(image_processor("ViT")(size=square(32), rescale_factor=0.0))


class TestLoading:
    def test_none(self, tmp_path: Path) -> None:
        assert load_image_processor(tmp_path, trust_remote_code=False) is None

    def test_settings_of_audio_are_none_of_images(self, tmp_path: Path) -> None:
        transformers.Wav2Vec2FeatureExtractor().save_pretrained(tmp_path)
        assert load_image_processor(tmp_path, trust_remote_code=False) is None

    def test_a_part_of_the_settings_of_a_processor(self, tmp_path: Path) -> None:
        image_processor("ViT")(size=square(48)).save_pretrained(tmp_path)
        settings = json.loads((tmp_path / "preprocessor_config.json").read_text())
        (tmp_path / "preprocessor_config.json").unlink()
        (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": settings}))
        if transformers.__version__ < "5":
            pytest.skip("transformers 4 knows no processor_config.json of this kind")
        loaded = load_image_processor(tmp_path, trust_remote_code=False)
        assert dict(loaded.size) == square(48)

    @pytest.mark.parametrize("kind", ["image_processor_type", "feature_extractor_type"])
    def test_settings_of_any_age(self, tmp_path: Path, kind: str) -> None:
        image_processor("ViT")(size=square(48)).save_pretrained(tmp_path)
        file = tmp_path / "preprocessor_config.json"
        settings = json.loads(file.read_text())
        settings.pop("image_processor_type")
        name = {"image_processor_type": "ViTImageProcessorFast", "feature_extractor_type": "ViTFeatureExtractor"}[kind]
        file.write_text(json.dumps({**settings, kind: name}))
        assert load_image_processor(tmp_path, trust_remote_code=False) is not None

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            ("{", "cannot be read"),
            ("[]", "holds a list"),
            ('{"image_processor_type": "NoSuch"}', "cannot be loaded"),
            (
                '{"image_processor_type": "Own", "auto_map": {"AutoImageProcessor": "own.Own"}}',
                "pass --trust-remote-code",
            ),
        ],
    )
    def test_broken(self, tmp_path: Path, content: str, told: str) -> None:
        (tmp_path / "preprocessor_config.json").write_text(content)
        with pytest.raises(SourceError, match=re.escape(told)):
            load_image_processor(tmp_path, trust_remote_code=False)


def test_what_bundle_json_says(maker) -> None:
    processor = image_processor("MobileViT")(size={"shortest_edge": 36}, crop_size=square(32), resample=3)
    assert maker(processor).preprocessing.image == ImagePreprocessing(
        channels=3, height=32, width=32, channel_order="bgr", size={"shortest_edge": 36},
        crop_size=square(32), resample="bicubic", rescale_factor=1 / 255,
    )  # fmt: skip


def _resnet() -> object:
    return transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1])


class _Detector(torch.nn.Module):
    """Takes what DETR takes."""

    def __init__(self, **config: object) -> None:
        super().__init__()
        self.config = SimpleNamespace(model_type="detr", **config)
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, pixel_values: torch.Tensor, pixel_mask: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        return {"logits": pixel_values * self.scale}
