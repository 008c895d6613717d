"""Models that hear, and models of time series, from checkpoint to bundle."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from onnxport.exporters import Recipe, export, load_bundle
from onnxport.exporters.cli.app import run
from onnxport.exporters.errors import SignatureError
from onnxport.exporters.signature import require_conformity
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, GraphContract, TensorSpec
from zoo.audio import write_spectrogram, write_waveform
from zoo.time_series import write as write_series

QUICK = Recipe(suite="quick", variants=("base",))


def test_speech_recognition_with_rows_of_several_lengths(tmp_path: Path) -> None:
    source = tmp_path / "wav2vec2"
    write_waveform("wav2vec2", "automatic-speech-recognition", source, mask=True)
    bundle = export(source, tmp_path / "out", recipe=Recipe(variants=("base",)))
    component = bundle.manifest.components["model"]
    assert [(spec.name, spec.shape) for spec in component.outputs] == [("logits", ("batch", "logits_1", 32))]
    assert len(component.axes["samples"].proven) > 4
    assert bundle.manifest.preprocessing.sampling_rate == 16000
    assert {"preprocessor_config.json", "vocab.json"} <= set(bundle.manifest.preprocessing.files)
    checks = bundle.report().checks
    assert any(check.id == "outputs.match" and check.case == "audio.lengths" for check in checks)
    skipped = [check.detail for check in checks if check.id == "tokenizer.match" and check.verdict == "skip"]
    assert any("no tokenizer.json" in detail for detail in skipped)
    # Another length than any that was compared: the frames follow the strides.
    audio = np.zeros((1, 9876), dtype=np.float32)
    session = load_bundle(tmp_path / "out").session("base")
    (logits,) = session.run(None, {"input_values": audio, "attention_mask": np.ones(audio.shape, dtype=np.int64)})
    assert logits.shape == (1, 30, 32)


def test_a_spectrogram_of_one_length(tmp_path: Path) -> None:
    source = tmp_path / "ast"
    write_spectrogram("audio-classification", source)
    bundle = export(source, tmp_path / "out", recipe=QUICK)
    (spec,) = bundle.manifest.components["model"].inputs
    assert (spec.name, spec.shape) == ("input_values", ("batch", 64, 32))


def test_an_extractor_of_another_model_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "ast"
    write_spectrogram("audio-classification", source)
    described = json.loads((source / "preprocessor_config.json").read_text(encoding="utf-8"))
    (source / "preprocessor_config.json").write_text(json.dumps({**described, "num_mel_bins": 48}), encoding="utf-8")
    assert run(["export", str(source), str(tmp_path / "out")]) == 2
    assert "does not belong to the model" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_series_model_that_hides_patches_at_random_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "patchtst"
    write_series("patchtst", "feature-extraction", source, do_mask_input=True)
    assert run(["export", str(source), str(tmp_path / "out"), "--task", "feature-extraction"]) == 2
    assert "do_mask_input" in capsys.readouterr().err


def test_an_output_that_is_not_as_promised_is_refused() -> None:
    contract = GraphContract(
        inputs=(TensorSpec(name="input_values", dtype="float32", shape=("batch", "samples")),),
        outputs=(TensorSpec(name="logits", dtype="float32", shape=("batch", 12, 32)),),
        axes={"batch": AxisRange(), "samples": AxisRange()},
    )
    case = Case("long", {"input_values": np.zeros((1, 8005), dtype=np.float32)})
    require_conformity(contract, case, {"logits": np.zeros((1, 12, 32))})
    with pytest.raises(SignatureError, match="dimension 1 of output 'logits' was 12"):
        require_conformity(contract, case, {"logits": np.zeros((1, 24, 32))})
    with pytest.raises(SignatureError, match=r"'logits' has the shape \[12, 32\] in case long, and had 3 dimensions"):
        require_conformity(contract, case, {"logits": np.zeros((12, 32))})
    with pytest.raises(SignatureError, match="'logits' is not there in case long"):
        require_conformity(contract, case, {})
