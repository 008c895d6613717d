"""Pictures and sounds against real bundles; the labels are what PyTorch and transformers' processors say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from scipy.io import wavfile

from onnxport.exporters import Recipe, export, load_bundle
from onnxport.exporters.cli.app import run
from onnxport.exporters.errors import DatasetError
from onnxport.exporters.preprocessing import load_image_processor
from onnxport.exporters.task_metrics.kept import metric_question
from onnxport.exporters.task_metrics.sounds import read_wave
from zoo import vision
from zoo.audio import write_waveform

RATE = 16_000
Against = Callable[[Path, Path, Path], list[dict[str, Any]]]


@pytest.fixture
def against(capsys: pytest.CaptureFixture[str]) -> Against:
    """against(checkpoint, bundle, dataset) -> the results of metric.kept, with PyTorch as the reference."""

    def ask(checkpoint: Path, bundle: Path, dataset: Path) -> list[dict[str, Any]]:
        arguments = ["verify", str(bundle), "--dataset", str(dataset), "--against", str(checkpoint), "--suite", "quick"]
        assert run([*arguments, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        return [check for check in document["checks"] if check["id"] == "metric.kept"]

    return ask


def exported(checkpoint: Path, out: Path) -> Path:
    export(checkpoint, out, recipe=Recipe(suite="quick", variants=("base",)), verify=False)
    return out


def pictures(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (count, 1, 1, 3))
    noise = rng.normal(0, 60, (count, 40, 56, 3))
    return list(np.clip(colours + noise, 0, 255).astype(np.uint8))


def test_image_classification(tmp_path: Path, against: Against) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    next(row for row in vision.ROWS if row.name == "vit image-classification").write(checkpoint)
    model = transformers.AutoModelForImageClassification.from_pretrained(checkpoint).eval()
    processor = load_image_processor(checkpoint, trust_remote_code=False)
    assert processor is not None
    dataset = tmp_path / "photos"
    for number, picture in enumerate(pictures(24)):
        image = Image.fromarray(picture)
        with torch.inference_mode():
            answer = int(model(**processor(images=image, return_tensors="pt")).logits.argmax())
        folder = dataset / model.config.id2label[answer]
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{number}.png")
    assert len(list(dataset.iterdir())) > 1, "a constant classifier would show nothing"
    found = against(checkpoint, exported(checkpoint, tmp_path / "bundle"), dataset)
    assert [(one["output"], one["reference_score"], one["score"], one["examples"]) for one in found] == [
        ("F1 (macro)", 1, 1, 24),
        ("accuracy", 1, 1, 24),
    ]
    bundle = load_bundle(tmp_path / "bundle")
    folder = next(dataset.iterdir())
    (folder / "notes.txt").write_text("no picture")
    with pytest.raises(DatasetError, match=r"notes.txt is no picture that Pillow reads"):
        metric_question(bundle, dataset)
    (folder / "notes.txt").unlink()
    folder.rename(dataset / "zebra")
    with pytest.raises(DatasetError, match="the model has no label 'zebra'"):
        metric_question(bundle, dataset)


def sounds(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        times = np.arange(rng.integers(4_000, 12_000)) / RATE
        tone = np.sin(2 * np.pi * rng.uniform(80, 4_000) * times) * rng.uniform(0.05, 0.5)
        found.append((32767 * np.clip(tone + rng.normal(0, 0.05, len(times)), -1, 1)).astype(np.int16))
    return found


@pytest.mark.parametrize("task", ["audio-classification", "automatic-speech-recognition"])
def test_sounds(task: str, tmp_path: Path, against: Against) -> None:
    checkpoint, dataset = tmp_path / "checkpoint", tmp_path / "sounds"
    write_waveform("wav2vec2", task, checkpoint)
    kind = {"audio-classification": "AudioClassification", "automatic-speech-recognition": "CTC"}[task]
    model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(checkpoint).eval()
    extractor = transformers.AutoFeatureExtractor.from_pretrained(checkpoint)
    rows = []
    for number, samples in enumerate(sounds(16)):
        with torch.inference_mode():
            inputs = extractor(samples / 32768, sampling_rate=RATE, return_tensors="pt")
            answer = model(**inputs).logits[0].argmax(-1)
        if kind == "CTC":
            text = transformers.AutoTokenizer.from_pretrained(checkpoint).decode(answer)
            rows.append({"audio": f"sounds/{number}.wav", "text": text})
        else:
            rows.append({"audio": f"sounds/{number}.wav", "label": int(answer)})
        dataset.mkdir(exist_ok=True)
        wavfile.write(dataset / f"{number}.wav", RATE, samples)
    rows = [row for row in rows if row.get("label") is not None or str(row["text"]).split()]
    assert len({str(row) for row in rows}) > 4
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = against(checkpoint, exported(checkpoint, tmp_path / "bundle"), tmp_path / "rows.jsonl")
    names = ["1 - WER"] if kind == "CTC" else ["F1 (macro)", "accuracy"]
    assert [(one["output"], one["reference_score"], one["score"]) for one in found] == [(name, 1, 1) for name in names]


def test_wave_files_of_every_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    for samples, expected in [
        (np.array([-32768, 0, 16384], np.int16), [-1, 0, 0.5]),
        (np.array([0, 128, 192], np.uint8), [-1, 0, 0.5]),
        (np.array([-(2**31), 0, 2**30], np.int32), [-1, 0, 0.5]),
        (np.array([-1, 0, 0.5], np.float32), [-1, 0, 0.5]),
        (np.array([[-32768, 0], [0, 0], [16384, 16384]], np.int16), [-0.5, 0, 0.5]),
    ]:
        wavfile.write(path, RATE, samples)
        found = read_wave(path, RATE)
        assert found.dtype == np.float32
        assert found.tolist() == expected
    with pytest.raises(DatasetError, match="16000 samples per second, and the model takes 8000; resample it"):
        read_wave(path, 8_000)
    path.write_text("no sound")
    with pytest.raises(DatasetError, match=r"a.wav is no WAV file"):
        read_wave(path, RATE)


def test_the_word_error_rate_by_hand() -> None:
    from onnxport.exporters.task_metrics.speech_recognition import SpeechRecognition

    asked = SpeechRecognition.__new__(SpeechRecognition)
    asked._texts = ["one two three four", "five"]
    (score,) = asked.scores(["one too three", "five six"])  # one other, one lost; one made up: 3 of 5
    assert score.value == pytest.approx(1 - 3 / 5)
    assert float(score.of(score.counts.sum(axis=0))) == pytest.approx(score.value)
    assert float(score.of(score.counts[[0, 0]].sum(axis=0))) == pytest.approx(1 - 2 / 4)
