"""Real inputs that have no place in the sizes of a graph are no cases, which the notes and the report say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import transformers

from onnxport.exporters import load_bundle
from onnxport.exporters.cli.app import run
from onnxport.exporters.exportable import Exportable
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.loading import load
from onnxport.exporters.recipe import Recipe
from zoo import TinyModel
from zoo.decoders import ROWS as DECODERS
from zoo.encoder_decoders import write_speech_to_text, write_text_model
from zoo.multimodal import ROWS as MULTIMODAL
from zoo.vision import ROWS as VISION


def _component(folder: Path, component: str | None = None, **recipe: Any) -> Exportable:
    return load(str(folder), Recipe(**recipe), HubOptions()).component(component)


def _written(rows: tuple[TinyModel, ...], name: str, folder: Path) -> Path:
    folder.mkdir()
    next(row for row in rows if row.name == name).write(folder)
    return folder


def test_texts_that_a_fixed_length_has_no_room_for_are_told(
    make_checkpoint: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = make_checkpoint("bert"), tmp_path / "out"
    assert run(["export", str(source), str(out), "--variant", "base", "--static", "sequence=3"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    why = "the 3 tokens that fit have no room for a text beside 3 special tokens"
    assert f"case text.pairs left out: {why}" in told
    assert "case text left out" not in told  # two special tokens, and one of the text
    report = load_bundle(out).report()
    assert report is not None
    assert [(check.verdict, check.detail) for check in report.checks if check.case == "text.pairs"] == [("skip", why)]

    # Every case of the suite is put or told of.
    wanted = {case.name for case in _component(source).cases("full") if case.name.startswith("text")}
    fixed = _component(source, static={"sequence": 2})
    put = {case.name for case in fixed.cases("full") if case.name.startswith("text")}
    assert put | set(fixed.left_out("full")) == wanted
    assert set(fixed.left_out("full")) == wanted
    assert _component(source).left_out("full") == {}

    assert run(["verify", str(out), "--against", str(source), "--suite", "standard", "--json"]) == 0
    assert f'"{why}"' in capsys.readouterr().out


def test_a_length_that_nothing_can_be_padded_to(make_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    folder = copytree(make_checkpoint("bert"), tmp_path / "bert")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    fixed = _component(folder, static={"sequence": 8})
    why = "the tokenizer has no padding token to fill the 8 tokens that the graph takes"
    assert fixed.left_out("quick") == {"text": why, "text.pairs": why}
    assert not [case.name for case in fixed.cases("quick") if case.name.startswith("text")]


def test_pictures_of_which_the_processor_makes_another_size(tmp_path: Path) -> None:
    """Swin2SR's pads every picture to multiples of 8."""
    folder = _written(VISION, "swin2sr image-to-image", tmp_path / "swin2sr")
    own = _component(folder)
    assert own.left_out("standard") == {}
    names = {case.name for case in own.cases("standard") if case.name.startswith("image.")}
    fixed = _component(folder, static={"height": 36, "width": 36})
    put = {case.name for case in fixed.cases("standard") if case.name.startswith("image.")}
    left = fixed.left_out("standard")
    assert left
    assert put | set(left) == names
    assert not put & set(left)
    assert set(left.values()) == {"the image processor makes no 36x36 pixels of it"}


def test_what_either_kind_leaves_out_of_a_model_of_several(tmp_path: Path) -> None:
    folder = _written(MULTIMODAL, "vilt visual-question-answering", tmp_path / "vilt")
    assert set(_component(folder, static={"sequence": 3}).left_out("quick")) == {"text.pairs"}
    page = _written(MULTIMODAL, "layoutlm token-classification", tmp_path / "layoutlm")
    assert set(_component(page, static={"sequence": 3}).left_out("quick")) == {"text.pairs"}


def test_texts_for_a_decoder_of_one_token_at_a_time(tmp_path: Path) -> None:
    folder = _written(DECODERS, "gpt2 text-generation", tmp_path / "gpt2")
    left = _component(folder, static={"sequence": 1}).left_out("standard")
    assert list(left) == ["text.prefill"]
    assert "and the graph takes 0 tokens in the cache and 1 new ones" in left["text.prefill"]
    assert _component(folder).left_out("standard") == {}


def test_sounds_that_make_fewer_states_than_the_decoder_takes(tmp_path: Path) -> None:
    for name, write in (("speech", write_speech_to_text), ("bart", lambda folder: write_text_model("bart", folder))):
        (tmp_path / name).mkdir()
        write(tmp_path / name)
    fixed = _component(tmp_path / "speech", "decoder_model", static={"encoder_sequence": 30})
    left, put = fixed.left_out("standard"), {case.name for case in fixed.cases("standard")}
    assert left
    assert not put & set(left)
    assert all("states of it, and the graph takes 30" in why for why in left.values())
    assert _component(tmp_path / "bart", "decoder_model", static={"encoder_sequence": 30}).left_out("standard") == {}
