from __future__ import annotations

from pathlib import Path

import pytest

from onnxport.verify.checks import load_check
from onnxport.verify.checks.tokenizer import compare_encodings
from onnxport.verify.errors import VerificationError
from onnxport.verify.tokenizer_record import (
    Encoding,
    TokenizerRecord,
    TokenizerSettings,
    load_tokenizer_record,
)

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "one", "two", "three", "four", "five"]
SETTINGS = TokenizerSettings(pad_token="[PAD]", max_length=64)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A word-level tokenizer, saved by somebody who pads everything to 16 on the left and cuts at 3."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.enable_padding(direction="left", length=16, pad_id=0, pad_token="[PAD]")
    tokenizer.enable_truncation(3)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def encoding(text: str, ids: list[int], pair: str | None = None, pad: int = 0, types: list[int] | None = None):
    mask = [1] * (len(ids) - pad) + [0] * pad
    return Encoding(text=text, pair=pair, ids=tuple(ids), type_ids=tuple(types or [0] * len(ids)), mask=tuple(mask))


RECORD = TokenizerRecord(
    settings=SETTINGS,
    encodings=(
        encoding("one two", [2, 4, 5, 3]),
        encoding("one [SEP] eleven", [2, 4, 3, 1, 3]),
        encoding("one", [2, 4, 3, 5, 3], pair="two", types=[0, 0, 0, 1, 1]),
    ),
    padded=(encoding("one two three", [2, 4, 5, 6, 3]), encoding("one", [2, 4, 3, 0, 0], pad=2)),
    truncated_to=4,
    truncated=(encoding("one two three four", [2, 4, 5, 3]),),
)


def ask(path: Path, settings: TokenizerSettings = SETTINGS, record: TokenizerRecord = RECORD) -> dict[str, str]:
    results = load_check("tokenizer.match")(path, settings, record)
    assert {r.id for r in results} == {"tokenizer.match"}
    return {str(r.case): r.verdict for r in results}


def test_the_files_give_what_was_recorded(file: Path) -> None:
    assert ask(file) == {"settings": "pass", "ids": "pass", "padding": "pass", "truncation": "pass"}


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({"padding_side": "left"}, {"settings", "padding"}),
        ({"truncation_side": "left"}, {"settings", "truncation"}),
        ({"max_length": 512}, {"settings"}),
        ({"pad_token": "[UNK]"}, {"settings", "padding"}),
        ({"pad_token": "<pad>"}, {"settings", "padding"}),
        ({"pad_token": None}, {"settings", "padding"}),
    ],
)
def test_wrong_settings(file: Path, change: dict[str, object], failed: set[str]) -> None:
    found = ask(file, SETTINGS.model_copy(update=change))
    assert {case for case, verdict in found.items() if verdict == "fail"} == failed


def test_another_vocabulary(file: Path) -> None:
    file.write_text(file.read_text().replace('"two": 5', '"two": 6').replace('"three": 6', '"three": 5'))
    found = ask(file)
    assert {case for case, verdict in found.items() if verdict == "fail"} == {"ids", "padding", "truncation"}


def test_a_tokenizer_that_adds_no_special_tokens(file: Path) -> None:
    from tokenizers import Tokenizer, processors

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B:1", special_tokens=[])
    tokenizer.save(str(file))
    assert ask(file)["ids"] == "fail"


def test_token_types_and_masks_count(file: Path) -> None:
    wrong = RECORD.encodings[2].model_copy(update={"type_ids": (0,) * 5})
    result = compare_encodings("ids", RECORD.encodings, (*RECORD.encodings[:2], wrong))
    assert result.verdict == "fail"
    assert "type_ids of 'one' differ from position 3 on: [0, 0], expected [1, 1]" in result.detail
    untyped = RECORD.model_copy(update={"encodings": (wrong.model_copy(update={"type_ids": None}),)})
    assert ask(file, record=untyped)["ids"] == "pass"
    assert compare_encodings("ids", (), ()).verdict == "fail"


def test_missing_and_broken_files(file: Path) -> None:
    assert ask(file.with_name("none.json")) == {"settings": "pass", "ids": "skip"}
    file.write_text("{}")
    assert ask(file)["ids"] == "fail"


def test_the_record_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(RECORD.to_json())
    assert load_tokenizer_record(path) == RECORD
    path.write_text("{}")
    with pytest.raises(VerificationError, match="is no record of a tokenizer"):
        load_tokenizer_record(path)
    with pytest.raises(VerificationError, match="cannot be read"):
        load_tokenizer_record(tmp_path / "none")
