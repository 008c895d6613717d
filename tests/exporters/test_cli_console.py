"""Stages, notes and data: which stream, and what --quiet and --json drop."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable

import pytest

from onnxport.exporters.cli.console import Console, format_seconds, format_size
from onnxport.exporters.progress import SILENT, Progress


def work(progress: Progress) -> None:
    with progress.stage("Export") as stage:
        stage.advance(1, 2)
        stage.note("nothing to fuse")
        stage.size(438_047_232)


def test_the_silent_progress_accepts_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    work(SILENT)
    assert capsys.readouterr() == ("", "")


def test_a_stage_is_one_line_on_stderr_with_its_notes_under_it(capsys: pytest.CaptureFixture[str]) -> None:
    work(Console())
    seen = capsys.readouterr()
    assert seen.out == ""
    assert re.fullmatch(r"Export +0\.0 s +438\.0 MB\n  nothing to fuse\n", seen.err)


def test_quiet_drops_progress_but_no_data(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(quiet=True)
    work(console)
    console.note("a note")
    console.data("the data")
    assert capsys.readouterr() == ("the data\n", "")


def test_json_replaces_data(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(as_json=True)
    console.data("the data")
    console.document({"näme": 1})
    assert json.loads(capsys.readouterr().out) == {"näme": 1}
    Console().document({"x": 1})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("columns", ["", "wide", "-5", "30"])
def test_tables_that_are_piped_have_80_columns_at_least(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    from rich.text import Text

    monkeypatch.setenv("COLUMNS", columns)
    Console().data(Text("x" * 80))
    assert capsys.readouterr().out == f"{'x' * 80}\n"


def test_a_stage_that_fails_says_so_and_lets_the_error_through(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with Console().stage("Export") as stage:
            stage.note("got this far")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert re.fullmatch(r"Export +0\.0 s  failed\n  got this far\n", capsys.readouterr().err)


def test_on_a_terminal_the_stage_is_alive_and_ends_as_the_same_line(on_terminal: Callable[..., str]) -> None:
    shown = on_terminal("stderr", lambda: work(Console()))
    assert "\x1b[" in shown, "something moves"
    assert re.search(r"Export +0\.0 s +438\.0 MB\r\n  nothing to fuse\r\n$", shown)


def test_a_broken_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = io.TextIOWrapper(io.FileIO(writer, "w"), write_through=True)
    stdout, sys.stdout = sys.stdout, stream
    try:
        console = Console()
        console.data("into the void")
        console.data("again")
    finally:
        sys.stdout = stdout
        stream.close()


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_960, "1.0 MB"),
        (90_868_376, "90.9 MB"),
        (2_500_000_000, "2.5 GB"),
    ],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.04, "0.0 s"), (3.21, "3.2 s"), (65.9, "1 min 5 s")])
def test_times(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
