"""Runs one step in a child process.

onnxruntime.transformers appends to sys.path, prints and configures logging, and native code can crash: none of that
may reach the process of whoever uses the library, nor may the memory that a step needs stay with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from onnxport.exporters.errors import VariantError
from onnxport.verify.import_target import import_target

# The working folder may hold files of a checkpoint: nothing may be imported from it. (PYTHONSAFEPATH would do, from
# Python 3.11 on.)
_START = f"""
import os, sys
sys.path[:] = [folder for folder in sys.path if folder not in ("", os.getcwd())]
from {__name__} import _main
_main()
"""


def run_in_child(function: str, cwd: Path, **arguments: Any) -> dict[str, Any]:
    """See `Children.run`; for a caller that waits and has nothing else to do."""
    return Children().run(function, cwd, **arguments)


class Children:
    """Child processes that end when the block does, whichever threads wait for them.

    with ThreadPoolExecutor(1) as beside, Children() as children: ...  # leaving it does not wait for a child
    """

    def __init__(self) -> None:
        self._alive: set[subprocess.Popen[bytes]] = set()
        self._ended = False
        self._lock = threading.Lock()

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._ended = True
            for process in self._alive:
                process.kill()

    def run(self, function: str, cwd: Path, **arguments: Any) -> dict[str, Any]:
        """Calls "module:function" with `arguments` in a fresh interpreter whose working folder is `cwd`.

        Arguments and result travel as JSON. The child ends when this call does and when this process does, by
        whatever exception or signal.

        Raises:
            VariantError: the function raised (its VariantError comes through as it is), the process died or gave no
                answer, or the block has ended.
            OSError: the function raised it.
        """
        with tempfile.TemporaryFile() as errors, self._started(function, cwd, errors) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):  # it died before it could read: how, is seen below
                process.stdin.write(json.dumps(arguments).encode() + b"\n")
                process.stdin.flush()  # and left open: its end tells the child that this process has gone
            answer = process.stdout.read()
            code = process.wait()
            errors.seek(0)
            words = _last_lines(errors.read().decode(errors="replace"))
        return _result(function, code, answer, words)

    @contextmanager
    def _started(self, function: str, cwd: Path, errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        with self._lock:
            if self._ended:
                raise VariantError(f"{function} was not started: what needed it has ended. Export again.")
            process = subprocess.Popen(
                [sys.executable, "-c", _START, function],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=cwd,
            )
            self._alive.add(process)
        try:
            yield process
        finally:
            process.kill()  # nothing, where it has ended by itself
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
            with self._lock:
                self._alive.discard(process)


def _result(function: str, code: int, answer: bytes, words: str) -> dict[str, Any]:
    """Returns what a process that has ended answered, or raises as `Children.run` says."""
    without = "The base variant does not need this step: --variant base."
    if code < 0:
        if -code == signal.SIGKILL:
            without = "Mostly that means that memory ran out; the base variant needs the least: --variant base."
        raise VariantError(f"{function} was killed by {_signal_name(-code)}. {without}{words}")
    if code:
        raise VariantError(f"{function} failed.{words}\n{without}")
    try:
        reply: dict[str, Any] = json.loads(answer)
    except ValueError as e:
        raise VariantError(f"{function} ended without an answer. {without}{words}") from e
    if "os_error" in reply:
        raise OSError(*reply["os_error"])
    if "variant_error" in reply:
        raise VariantError(reply["variant_error"])
    result: dict[str, Any] = reply["result"]
    return result


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _last_lines(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    return "".join(f"\n  {line}" for line in lines[-12:])


def _main() -> None:
    """Answers on the real standard output; whatever else is printed goes to standard error."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    arguments = json.loads(sys.stdin.readline())
    if sys.platform != "win32":  # a thread that waits for a pipe there blocks whoever asks for standard input
        threading.Thread(target=_end_with_the_parent, daemon=True).start()
    try:
        reply = {"result": import_target(sys.argv[1])(**arguments)}
    except VariantError as e:
        reply = {"variant_error": str(e)}
    except OSError as e:
        reply = {"os_error": [e.errno, e.strerror, e.filename] if e.errno else [str(e)]}
    with answer:
        json.dump(reply, answer)


def _end_with_the_parent() -> None:
    # Not sys.stdin: the interpreter cannot end in order while a thread waits in that.
    os.read(0, 1)
    os._exit(1)
