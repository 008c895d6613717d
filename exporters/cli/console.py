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
from onnxport.exporters.cli.standard_streams import writing

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import RenderableType
    from rich.progress import Progress as Bar

COLUMNS = 80
"""Taken for the width of a terminal that does not tell it."""

MIN_COLUMNS = 40

NAME_WIDTH = 34
"""Columns kept for the name of a stage, so that times stand under each other."""


class Console:
    """The sink of one command.

    `quiet` drops progress and notes, and of the data what is not essential; never errors. With `as_json` stdout carries
    one JSON document: `data` is not printed, `document` is. What cannot be written to stdout is an OSError; of stderr
    nothing was asked. It is a `Progress` for the library (see `onnxport.exporters.progress`).
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet = quiet
        self._as_json = as_json
        # Kept, because while the library runs sys.stdout points to stderr.
        self._stdout = sys.stdout
        self._stderr = sys.stderr

    def data(self, what: str | RenderableType, *, style: str | None = None, indent: str = "  ") -> None:
        """Prints what the command was asked for, unless a JSON document takes its place.

        `style`: on a terminal. Text is wrapped there, `indent` in front of what does not fit into the first line.
        """
        if self._as_json:
            return
        if isinstance(what, str):
            what = _wrapped(what, self._stdout, indent)
        if not isinstance(what, str) or (style and self._stdout.isatty()):
            terminal = _rich(self._stdout)
            with terminal.capture() as captured:  # Rich itself would end the process when the reader has left
                terminal.print(what, style=style, soft_wrap=isinstance(what, str))
            what = captured.get().removesuffix("\n")
        self._print(what)

    def document(self, content: Mapping[str, Any]) -> None:
        """Prints the JSON document of a command that was run with --json."""
        if self._as_json:
            self._print(json.dumps(content, indent=2, ensure_ascii=False))

    def note(self, text: str) -> None:
        """Says something a person should know."""
        if not self.quiet:
            self._say(text)

    def commands(self, text: str) -> None:
        """Prints commands for a CI system. On stderr, which it reads as well, so that stdout stays one document."""
        with writing(self._stderr, "standard error"):
            print(text.rstrip("\n"), file=self._stderr)

    def failure(self, failure: Failure) -> None:
        """Tells why the command ends badly: one message on stderr, with --json also as the document."""
        self._say(f"error: {failure.message}")
        error = {"type": failure.kind, "message": failure.message, "exit_code": failure.exit_code}
        with contextlib.suppress(OSError):  # the exit code says it too
            self.document({"error": error})

    def traceback(self, error: BaseException) -> None:
        """Prints the traceback that --debug asks for."""
        self._say("".join(traceback.format_exception(error)).rstrip(), wrap=False)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[StageLine]:
        """Shows one stage: alive while it runs on a terminal, one line when it has ended."""
        line = StageLine(name, None if self.quiet or not self._stderr.isatty() else _live(self._stderr, name))
        try:
            yield line
        except BaseException:
            self._stage_ended(line, failed=True)
            raise
        self._stage_ended(line, failed=False)

    def _stage_ended(self, line: StageLine, *, failed: bool) -> None:
        line.stop()
        self.note(line.summary(failed=failed))
        for text in line.notes:
            self.note(f"  {text}")

    def _print(self, text: str) -> None:
        with writing(self._stdout, "standard output"):
            print(text, file=self._stdout)

    def _say(self, text: str, *, wrap: bool = True) -> None:
        with contextlib.suppress(OSError), writing(self._stderr, "standard error"):
            print(_wrapped(text, self._stderr, "  ") if wrap else text, file=self._stderr)


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


def _wrapped(text: str, stream: TextIO, indent: str) -> str:
    """Fits text into the terminal. What is piped stays in one line, for those who search it."""
    if not stream.isatty():
        return text
    return wrap_lines(text, os.get_terminal_size(stream.fileno()).columns or COLUMNS, indent)


def wrap_lines(text: str, width: int, indent: str) -> str:
    """Wraps each line at `width` columns, `indent` in front of what follows; paths and numbers stay in one piece."""
    fill = textwrap.TextWrapper(
        max(width, MIN_COLUMNS), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ).fill
    return "\n".join(line if len(line) <= width else fill(line) for line in text.split("\n"))


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
