"""What the README and the pages it leads to show works as it stands there: Python, recipe, commands and links."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxport.exporters.cli.app import run
from onnxport.exporters.recipe_file import parse_recipe

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
README = PAGES[0].read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(make_checkpoint("bert"), folder / "checkpoint")
    assert run(["export", str(folder / "checkpoint"), str(folder / "out"), "--suite", "quick", "--quiet"]) == 0
    return folder


def test_the_python_runs_from_top_to_bottom(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    found = blocks("python")
    assert len(found) == 5
    shapes = []
    for block in found:
        names: dict[str, object] = {}
        exec(compile(block, "README.md", "exec"), names)
        if "report" in names:
            assert names["report"].verdict == "pass"  # type: ignore[attr-defined]
        if "outputs" in names:
            shapes.append(names["outputs"][0].shape)  # type: ignore[index]
    assert [shape[0] for shape in shapes] == [2], "one program runs a bundle, on two sentences"


def test_the_plain_module_is_exported_with_its_axis(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = (block for block in blocks("python") if block.startswith("# mine.py"))
    (folder / "mine.py").write_text(block)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    assert run(["export", "mine:classifier", "plain", "--suite", "quick", "--quiet"]) == 0
    monkeypatch.delitem(sys.modules, "mine")
    assert run(["verify", "plain", "--against", "mine:classifier", "--quiet"]) == 0, "the same weights again"


def test_sentences_are_compared_where_the_bundle_has_their_embedding(folder: Path) -> None:
    command = [sys.executable, ROOT / "scripts" / "similarity.py", folder / "out"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"{folder / 'out'} gives ")
    assert "no sentence_embedding; give a bundle of a sentence-transformers checkpoint" in ended.stderr


def test_what_quickstart_says_next_is_what_the_readme_says() -> None:
    said = re.findall(r'^echo "  (.+)"$', (ROOT / "scripts" / "quickstart").read_text(encoding="utf-8"), re.MULTILINE)
    assert said[0] == "source .venv/bin/activate"
    assert said[0] in README
    export = said[1].split()
    assert export[:2] == ["onnxport", "export"]
    assert export[3] != "bundles/minilm", "which is there already"


def test_the_recipe_is_one() -> None:
    (text,) = blocks("yaml")
    assert parse_recipe(text, "README.md").static == {"sequence": 128}


def commands() -> list[list[str]]:
    pages = (README, *(path.read_text(encoding="utf-8") for path in PAGES if path.stem in ("verification", "tasks")))
    found = [block for page in pages for block in blocks("", page)]
    lines = [line.partition("#")[0].partition(";")[0] for block in found for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("onnxport ")]


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_the_commands_are_accepted(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    offline = ["--offline"] if arguments[0] in ("export", "verify", "localize") else []
    assert run([*arguments, *offline, "--json"]) == 0 or re.search(
        r'"type": "(SourceError|BundleError|ModelFileError)"', capsys.readouterr().out
    ), "only what it names is missing"


def test_no_two_exports_go_to_one_folder() -> None:
    """The page can be pasted from top to bottom: an OUT that exists is refused."""
    targets = [arguments[2] for arguments in commands() if arguments[0] == "export"]
    assert len(targets) == len(set(targets)) >= 5


def anchors(text: str) -> set[str]:
    """The names that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8"))
    for path, heading in links:
        target = page.parent / path if path else page
        assert target.is_file(), path
        assert not heading or heading in anchors(target.read_text(encoding="utf-8")), f"{path}#{heading}"
