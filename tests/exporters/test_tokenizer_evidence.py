from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxport.exporters.errors import BundleError
from onnxport.exporters.preprocessing import load_tokenizer
from onnxport.exporters.tokenizer_evidence import check_tokenizer, record_tokenizer
from onnxport.exporters.tokenizer_settings import read_settings
from onnxport.verify.tokenizer_record import TokenizerRecord, TokenizerSettings


@pytest.fixture
def folder(make_checkpoint, tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copyfile(make_checkpoint("bert") / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def record(make_checkpoint) -> TokenizerRecord:
    return record_tokenizer(load_tokenizer(make_checkpoint("bert"), trust_remote_code=False))


def failures(folder: Path, record: TokenizerRecord) -> set[str]:
    results = check_tokenizer(folder, record, trust_remote_code=False)
    assert [r.case for r in results] == ["settings", "ids", "padding", "truncation", "transformers"]
    assert {r.id for r in results} == {"tokenizer.match"}
    return {str(r.case) for r in results if r.verdict != "pass"}


def change(path: Path, edit: Callable[[dict], None]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def test_a_copy_gives_the_same(folder: Path, record: TokenizerRecord) -> None:
    assert failures(folder, record) == set()
    assert TokenizerRecord.model_validate_json(record.to_json()) == record


def test_a_wrong_padding_side(folder: Path, record: TokenizerRecord) -> None:
    change(folder / "tokenizer_config.json", lambda c: c.update(padding_side="left"))
    assert failures(folder, record) == {"settings", "padding", "transformers"}


def test_a_longer_maximum(folder: Path, record: TokenizerRecord) -> None:
    change(folder / "tokenizer_config.json", lambda c: c.update(model_max_length=512))
    assert failures(folder, record) == {"settings", "transformers"}


def test_case_kept_where_the_source_lowers_it(folder: Path, record: TokenizerRecord) -> None:
    change(folder / "tokenizer.json", lambda c: c["normalizer"].update(lowercase=False))
    assert {"ids", "padding", "truncation"} <= failures(folder, record)


def test_files_that_are_silent_mean_what_transformers_meant() -> None:
    meant = TokenizerSettings(padding_side="left", pad_token="<pad>", max_length=77)
    assert read_settings(Path("/nonexistent"), meant) == meant


def test_settings_in_the_ways_they_are_written(tmp_path: Path) -> None:
    nothing = TokenizerSettings()
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"pad_token": {"content": "<p>"}, "model_max_length": 1e30, "padding_side": "left"}))
    assert read_settings(tmp_path, nothing) == TokenizerSettings(padding_side="left", pad_token="<p>")
    config.write_text("{}")
    (tmp_path / "special_tokens_map.json").write_text('{"pad_token": "<q>"}')
    assert read_settings(tmp_path, nothing).pad_token == "<q>"
    for wrong, message in (("{", "cannot be read"), ("[]", "holds a list"), ('{"padding_side": "up"}', "malformed")):
        config.write_text(wrong)
        with pytest.raises(BundleError, match=message):
            read_settings(tmp_path, nothing)
