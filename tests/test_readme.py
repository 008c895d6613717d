"""What the README shows works as it stands there: its Python, its recipe and its commands."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxport.exporters.cli.app import run
from onnxport.exporters.recipe_file import parse_recipe

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(make_checkpoint("bert"), folder / "checkpoint")
    return folder


def test_the_python_runs_from_top_to_bottom(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    found = blocks("python")
    assert len(found) == 5
    for block in found:
        names: dict[str, object] = {}
        exec(compile(block, "README.md", "exec"), names)
        if "report" in names:
            assert names["report"].verdict == "pass"  # type: ignore[attr-defined]
    assert names["outputs"][0].shape[0] == 2  # type: ignore[index]


def test_the_plain_module_is_exported_with_its_axis(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = (block for block in blocks("python") if block.startswith("# mine.py"))
    (folder / "mine.py").write_text(block)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    assert run(["export", "mine:classifier", "plain", "--suite", "quick", "--quiet"]) == 0


def test_the_recipe_is_one() -> None:
    (text,) = blocks("yaml")
    assert parse_recipe(text, "README.md").static == {"sequence": 128}


def commands() -> list[list[str]]:
    lines = [line.partition("#")[0].partition(";")[0] for block in blocks("") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("onnxport ")]


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_the_commands_are_accepted(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    offline = ["--offline"] if arguments[0] in ("export", "verify", "localize") else []
    assert run([*arguments, *offline, "--json"]) == 0 or re.search(
        r'"type": "(SourceError|BundleError)"', capsys.readouterr().out
    ), "only what it names is missing"
