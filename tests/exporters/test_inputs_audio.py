"""What is found out of a feature extractor and a model: shapes, axes, masks and the shortest audio."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxport.exporters.checkpoint import Checkpoint, load_checkpoint
from onnxport.exporters.errors import RecipeError, SignatureError, SourceError
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.inputs.audio import AudioInputs, audio_inputs
from onnxport.exporters.inputs.audio_layout import find_layout
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.source import find_folder
from zoo.audio import write_spectrogram, write_waveform


def load(folder: Path, **recipe: Any) -> Checkpoint:
    return load_checkpoint(find_folder(str(folder), HubOptions()), Recipe(**recipe), HubOptions())


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masked")
    write_waveform("wav2vec2", "audio-classification", folder, mask=True)
    return folder


@pytest.fixture(scope="module")
def unmasked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unmasked")
    write_waveform("hubert", "feature-extraction", folder)
    return folder


@pytest.fixture(scope="module")
def spectrogram(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spectrogram")
    write_spectrogram("audio-classification", folder)
    return folder


def rewrite(folder: Path, target: Path, **settings: Any) -> Path:
    """A copy of a checkpoint with other settings of its feature extractor."""
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    described = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8"))
    (target / "preprocessor_config.json").write_text(json.dumps({**described, **settings}), encoding="utf-8")
    return target


def cases_by_name(maker: AudioInputs, suite: str = "standard") -> dict[str, Any]:
    return {case.name: case for case in maker.cases(suite)}


def test_a_waveform_with_a_mask_has_two_axes_and_a_shortest_length(masked: Path) -> None:
    maker = audio_inputs(load(masked))
    assert maker.inputs == {"input_values": ("batch", "samples"), "attention_mask": ("batch", "samples")}
    assert maker.mask == "attention_mask"
    # 400 samples are the field of wav2vec2's seven convolutions: kernels 10, 3, 3, 3, 3, 2, 2, strides 5, 2, ...
    assert maker.axes["samples"].min == 400
    assert maker.preprocessing.sampling_rate == 16000
    assert maker.notes == ()
    lengths = cases_by_name(maker)["audio.lengths"].inputs["attention_mask"].sum(axis=1)
    assert len(set(lengths.tolist())) == 3, "rows of several lengths, padded"


def test_an_extractor_without_a_mask_leaves_it_out(unmasked: Path) -> None:
    maker = audio_inputs(load(unmasked))
    assert set(maker.inputs) == {"input_values"}
    assert maker.mask is None
    assert not any(name.startswith("padding") for name in cases_by_name(maker))


def test_audio_that_is_cut_to_one_length_is_fixed(spectrogram: Path) -> None:
    maker = audio_inputs(load(spectrogram))
    assert maker.inputs == {"input_values": ("batch", 64, 32)}
    assert set(maker.axes) == {"batch"}


def test_no_case_runs_at_the_traced_sizes(masked: Path) -> None:
    maker = audio_inputs(load(masked))
    for case in maker.cases("full"):
        assert case.inputs["input_values"].shape != (maker.example["batch"], maker.example["samples"])
        assert case.inputs["input_values"].dtype == np.float32
        assert case.inputs["attention_mask"].dtype == np.int64


def test_a_static_length_pads_and_cuts_real_audio(masked: Path) -> None:
    maker = audio_inputs(load(masked, static={"samples": 3000}))
    assert maker.axes["samples"].fixed == 3000
    for case in maker.cases("standard"):
        assert case.inputs["input_values"].shape[1] == 3000
    short = cases_by_name(maker)["audio.silence"].inputs["attention_mask"]
    assert short.sum() == 2400, "0.15 s at 16 kHz, the rest is padding"


def test_axes_are_renamed_in_every_input(masked: Path) -> None:
    maker = audio_inputs(load(masked, axes={"input_values": ("rows", "time")}))
    assert maker.inputs == {"input_values": ("rows", "time"), "attention_mask": ("rows", "time")}


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"axes": {"input_ids": ("batch", "samples")}}, "unknown input 'input_ids'"),
        ({"axes": {"input_values": ("batch",)}}, "it has 2"),
        ({"axes": {"input_values": ("one", "one")}}, "the same name"),
        ({"axes": {"input_values": ("a", "b"), "attention_mask": ("c", "b")}}, "both 'a' and 'c'"),
        ({"static": {"sequence": 7}}, "unknown axis 'sequence'"),
    ],
)
def test_axes_that_do_not_fit_are_refused(masked: Path, recipe: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        audio_inputs(load(masked, **recipe))


def test_a_dimension_of_the_model_keeps_its_size(spectrogram: Path) -> None:
    with pytest.raises(RecipeError, match="a dimension of 'input_values' that is 64"):
        audio_inputs(load(spectrogram, axes={"input_values": ("batch", "frames", 32)}))


def test_an_extractor_of_another_model_is_refused(spectrogram: Path, tmp_path: Path) -> None:
    folder = rewrite(spectrogram, tmp_path, num_mel_bins=48)
    with pytest.raises(SourceError, match=r"\[2, 64, 48\].*config.json asks for 32 bins"):
        audio_inputs(load(folder))


def test_an_extractor_of_other_inputs_is_refused(masked: Path) -> None:
    from transformers import WhisperFeatureExtractor

    with pytest.raises(SignatureError, match=r"makes input_features.*none in common"):
        find_layout(WhisperFeatureExtractor(), ("input_values", "attention_mask"), "Wav2Vec2Model")


def test_an_extractor_that_cannot_be_loaded_is_refused(masked: Path, tmp_path: Path) -> None:
    folder = rewrite(masked, tmp_path, feature_extractor_type="NoSuchFeatureExtractor")
    (folder / "config.json").write_text(
        (folder / "config.json").read_text(encoding="utf-8").replace('"wav2vec2"', '"bert"'), encoding="utf-8"
    )
    with pytest.raises(SourceError, match=r"feature extractor of .* cannot be loaded"):
        load(folder, task="text-classification")


def test_without_an_extractor_the_default_of_the_model_type_is_used_and_said(spectrogram: Path, tmp_path: Path) -> None:
    folder = rewrite(spectrogram, tmp_path)
    (folder / "preprocessor_config.json").unlink()
    maker = audio_inputs(load(folder))
    assert maker.inputs == {"input_values": ("batch", 64, 32)}, "sizes of the config, not those of the class"
    assert any("no preprocessor_config.json" in note for note in maker.notes)


@pytest.mark.parametrize("name", ["Whisper", "Speech2Text"])
def test_spectrograms_of_encoder_decoders(name: str) -> None:
    import transformers

    extractor = getattr(transformers, f"{name}FeatureExtractor")()
    layout = find_layout(extractor, ("input_features", "attention_mask"), "an encoder")
    expected = {
        "Whisper": {"input_features": ("batch", 80, 3000)},
        "Speech2Text": {"input_features": ("batch", "frames", 80), "attention_mask": ("batch", "frames")},
    }
    assert layout.inputs == expected[name]
