"""Where a command's words go: data to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
import time
import traceback
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from onnxport.exporters.cli.failures import Failure

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import RenderableType
    from rich.progress import Progress as Bar

NAME_WIDTH = 34
"""Columns kept for the name of a stage, so that times stand under each other."""


class Console:
    """The sink of one command.

    `quiet` drops progress and notes, never data or errors. With `as_json` stdout carries one JSON document: `data` is
    not printed, `document` is. It is a `Progress` for the library (see `onnxport.exporters.progress`).
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self._quiet = quiet
        self._as_json = as_json
        # Kept, because while the library runs sys.stdout points to stderr.
        self._stdout = sys.stdout
        self._stderr = sys.stderr

    def data(self, what: str | RenderableType, *, style: str | None = None) -> None:
        """Prints what the command was asked for, unless a JSON document takes its place; `style`: on a terminal."""
        if self._as_json:
            return
        with _quiet_when_the_reader_left(self._stdout):
            if isinstance(what, str) and not (style and self._stdout.isatty()):
                print(what, file=self._stdout, flush=True)
            else:
                _rich(self._stdout).print(what, style=style, soft_wrap=isinstance(what, str))

    def document(self, content: Mapping[str, Any]) -> None:
        """Prints the JSON document of a command that was run with --json."""
        if self._as_json:
            with _quiet_when_the_reader_left(self._stdout):
                print(json.dumps(content, indent=2, ensure_ascii=False), file=self._stdout, flush=True)

    def note(self, text: str) -> None:
        """Says something a person should know."""
        if not self._quiet:
            self._say(text)

    def commands(self, text: str) -> None:
        """Prints commands for a CI system. On stderr, which it reads as well, so that stdout stays one document."""
        self._say(text.rstrip("\n"))

    def failure(self, failure: Failure) -> None:
        """Tells why the command ends badly: one message on stderr, with --json also as the document."""
        self._say(f"error: {failure.message}")
        self.document({"error": {"type": failure.kind, "message": failure.message, "exit_code": failure.exit_code}})

    def traceback(self, error: BaseException) -> None:
        """Prints the traceback that --debug asks for."""
        self._say("".join(traceback.format_exception(error)).rstrip())

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[StageLine]:
        """Shows one stage: alive while it runs on a terminal, one line when it has ended."""
        line = StageLine(name, None if self._quiet or not self._stderr.isatty() else _live(self._stderr, name))
        try:
            yield line
        except BaseException:
            self._stage_ended(line, failed=True)
            raise
        self._stage_ended(line, failed=False)

    def _stage_ended(self, line: StageLine, *, failed: bool) -> None:
        line.stop()
        self.note(line.summary(failed=failed))
        width = os.get_terminal_size(self._stderr.fileno()).columns if self._stderr.isatty() else 10_000
        for text in line.notes:
            self.note(textwrap.fill(text, width=max(width, 40), initial_indent="  ", subsequent_indent="  "))

    def _say(self, text: str) -> None:
        with _quiet_when_the_reader_left(self._stderr):
            print(text, file=self._stderr, flush=True)


class StageLine:
    """One stage while it runs; a `Stage` for the library."""

    def __init__(self, name: str, live: Bar | None) -> None:
        self.name = name
        self.notes: list[str] = []
        self._size_bytes: int | None = None
        self._live = live
        self._started = time.perf_counter()

    def note(self, text: str) -> None:
        self.notes.append(text)

    def size(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes

    def advance(self, done: int, total: int) -> None:
        if self._live is not None:
            self._live.update(self._live.task_ids[0], completed=done, total=total, bar=True)

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()

    def summary(self, *, failed: bool) -> str:
        """Returns "Export                   3.2 s   438.0 MB"."""
        parts = [f"{self.name:<{NAME_WIDTH}}", f"{format_seconds(time.perf_counter() - self._started):>9}"]
        if self._size_bytes is not None:
            parts.append(f"{format_size(self._size_bytes):>11}")
        if failed:
            parts.append("  failed")
        return "".join(parts)


def format_size(size_bytes: int) -> str:
    """Returns "438.0 MB", in powers of 1000."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    for power, unit in ((1, "kB"), (2, "MB")):
        if size_bytes < 999.95 * 1000**power:
            return f"{size_bytes / 1000**power:.1f} {unit}"
    return f"{size_bytes / 1000**3:.1f} GB"


def format_seconds(seconds: float) -> str:
    """Returns "3.2 s" or "2 min 5 s"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def _live(stream: TextIO, name: str) -> Bar:
    from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn

    class BarWhenAsked(BarColumn):
        def render(self, task: Task) -> Any:
            return super().render(task) if task.fields["bar"] else ""

    columns = (SpinnerColumn(), TextColumn(f"{{task.description:<{NAME_WIDTH}}}"), BarWhenAsked(), TimeElapsedColumn())
    bar = Progress(*columns, console=_rich(stream), transient=True, redirect_stdout=False, redirect_stderr=False)
    bar.add_task(name, total=None, bar=False)
    bar.start()
    return bar


def _rich(stream: TextIO) -> RichConsole:
    from rich.console import Console as RichConsole

    # Not a terminal: wide enough that nothing is cut, so that what is piped can be searched.
    columns = os.environ.get("COLUMNS", "")
    width = None if stream.isatty() else max(80, int(columns) if columns.isdecimal() else 0)
    return RichConsole(file=stream, width=width, highlight=False, markup=False, emoji=False)


@contextlib.contextmanager
def _quiet_when_the_reader_left(stream: TextIO) -> Iterator[None]:
    """`onnxport inspect x | head` is no error: what the reader no longer wants goes nowhere, the exit code stays."""
    try:
        yield
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
