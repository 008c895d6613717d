"""Ids of another vocabulary in generation_config.json: refused where generation uses them, else told."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

import pytest

from onnxport.exporters.cli.app import run
from onnxport.exporters.errors import SourceError
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.loading import load
from onnxport.exporters.recipe import Recipe
from zoo.decoders import ROWS
from zoo.encoder_decoders import write_text_model
from zoo.tokenizer import VOCABULARY

KNOWN = len(VOCABULARY)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {name: tmp_path_factory.mktemp(name) for name in ("gpt2", "bart")}
    next(row for row in ROWS if row.architecture == "gpt2").write(folders["gpt2"])
    write_text_model("bart", folders["bart"])
    return folders


def _changed(folder: Path, target: Path, **changes: object) -> Path:
    copytree(folder, target)
    path = target / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return target


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("gpt2", {"pad_token_id": KNOWN}, "pad_token_id .*: rows of a batch that end early are filled up with it"),
        ("bart", {"pad_token_id": 50_000}, "pad_token_id .*: rows of a batch that end early are filled up with it"),
        ("bart", {"decoder_start_token_id": KNOWN}, "decoder_start_token_id .*: the decoder begins with it"),
        ("bart", {"decoder_start_token_id": -1}, "decoder_start_token_id .*: the decoder begins with it"),
        ("bart", {"forced_bos_token_id": KNOWN}, "forced_bos_token_id .*: generation is forced to it"),
        ("gpt2", {"forced_eos_token_id": [3, KNOWN]}, "forced_eos_token_id .*: generation is forced to it"),
    ],
)
def test_an_id_that_generation_uses_is_refused(
    checkpoints: dict[str, Path], tmp_path: Path, name: str, changes: dict[str, object], why: str
) -> None:
    folder = _changed(checkpoints[name], tmp_path / name, **changes)
    with pytest.raises(SourceError, match=rf"{why}; put the model's own generation_config.json"):
        load(str(folder), Recipe(), HubOptions())


def test_the_refusal_is_a_usage_error(
    checkpoints: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _changed(checkpoints["gpt2"], tmp_path / "gpt2", pad_token_id=KNOWN)
    assert run(["export", str(folder), str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert f"pad_token_id in generation_config.json is {KNOWN}, and the model knows the ids 0 to {KNOWN - 1}" in told
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        ("gpt2", {"eos_token_id": KNOWN}, "no text ends with it"),
        ("gpt2", {"eos_token_id": [3, -1]}, "no text ends with it"),
        ("gpt2", {"bos_token_id": KNOWN}, "no text begins with it"),
        ("gpt2", {"pad_token_id": -1}, "texts of different lengths cannot be padded with it"),
        ("bart", {"eos_token_id": KNOWN}, "no text ends with it"),
        ("bart", {"bos_token_id": KNOWN}, "no text begins with it"),
    ],
)
def test_an_id_that_transformers_goes_on_without_is_told(
    checkpoints: dict[str, Path], tmp_path: Path, name: str, changes: dict[str, object], told: str
) -> None:
    folder = _changed(checkpoints[name], tmp_path / name, **changes)
    loaded = load(str(folder), Recipe(), HubOptions())
    notes = [note for exportable in loaded.components.values() for note in exportable.notes]
    (field,) = changes
    assert [note for note in notes if note.startswith(field) and note.endswith(told)]


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_ids_of_the_vocabulary_are_not_mentioned(checkpoints: dict[str, Path], name: str) -> None:
    loaded = load(str(checkpoints[name]), Recipe(), HubOptions())
    assert not [note for one in loaded.components.values() for note in one.notes if "token_id" in note]


def test_a_model_that_does_not_generate_may_have_any(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    folder = _changed(checkpoints["gpt2"], tmp_path / "gpt2", pad_token_id=KNOWN)
    loaded = load(str(folder), Recipe(task="feature-extraction"), HubOptions())
    assert list(loaded.components) == ["model"]
