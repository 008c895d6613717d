"""The error table: every way a command can end badly, as one message and an exit code."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer

from onnxport.exporters.cli.stop_signals import Stopped
from onnxport.exporters.extras import MODULES, install
from onnxport.verify.errors import OnnxportError

INTERRUPTED = 130
"""128 + SIGINT, what a shell reports for a program that was stopped with Ctrl-C."""

_OS_ADVICE = {
    errno.ENOSPC: "no space is left on the device; free some, or choose another folder",
    errno.EDQUOT: "the disk quota is used up; free some space, or choose another folder",
    errno.EACCES: "permission denied; choose a path you may read and write",
    errno.EPERM: "the operation is not permitted there; choose a path you may read and write",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.ENOENT: "there is no such file or folder; check the path",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
}


@dataclass(frozen=True)
class Failure:
    """What a person, or with --json a program, is told. `kind` is the name of the exception's class."""

    kind: str
    message: str
    exit_code: int = 2


def explain(error: BaseException) -> Failure:
    """Returns what to say about an exception that ended a command."""
    kind = type(error).__name__
    if hasattr(error, "format_message"):  # Typer's usage errors; their class is public in some of its releases only
        return Failure("UsageError", _usage(error))
    for classes, message in _TABLE:
        if isinstance(error, classes) and not _is_own_module(error):
            return message(error)
    text = str(error).strip()
    seen = f"{kind}: {text}" if text else kind
    return Failure(
        kind, f"unexpected {seen}\nThis is likely a defect of onnxport: run again with --debug for the traceback."
    )


def interrupted(_: BaseException | None = None) -> Failure:
    """Returns what to say after Ctrl-C."""
    return Failure("Interrupted", "interrupted", INTERRUPTED)


def _stopped(error: BaseException) -> Failure:
    assert isinstance(error, Stopped)
    return Failure("Stopped", f"stopped by {error}", 128 + error.number)


def _exited(error: BaseException) -> Failure:
    """Its own code would pass for a verdict: 0 agrees, 1 disagrees."""
    return Failure(
        "SystemExit",
        f"code that onnxport ran wanted to end the program (SystemExit: {error}), before the command was done; what a "
        "factory or a checkpoint brings must not call sys.exit()",
    )


def _is_own_module(error: BaseException) -> bool:
    """A module of onnxport that is missing is a defect, nothing that a person forgot to install."""
    return isinstance(error, ImportError) and (error.name or "").split(".")[0] == "onnxport"


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "onnxport"
    message = str(error.format_message()).rstrip(".")
    return f"{message}{'' if message.endswith('?') else '.'} Try '{command} --help'."


def _own(error: BaseException) -> Failure:
    return Failure(type(error).__name__, str(error))


def _missing_module(error: BaseException) -> Failure:
    name = (getattr(error, "name", None) or str(error)).partition(".")[0]
    for extra, modules in MODULES.items():
        if name in modules:
            return Failure("MissingExtra", f"this needs {name}, which is not installed: {install(extra)}")
    return Failure("MissingModule", f"the Python module {name} is not installed: pip install it, then run again")


def _os_error(error: BaseException) -> Failure:
    assert isinstance(error, OSError)
    advice = _OS_ADVICE.get(error.errno or 0, error.strerror or str(error))
    where = f"{error.filename}: " if error.filename else ""
    return Failure(type(error).__name__, f"{where}{advice}")


def _memory(_: BaseException) -> Failure:
    return Failure(
        "MemoryError", "there is not enough memory for this model; close other programs or use a larger machine"
    )


_TABLE: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Callable[[BaseException], Failure]], ...] = (
    (OnnxportError, _own),
    ((KeyboardInterrupt, typer.Abort), interrupted),
    (Stopped, _stopped),
    (SystemExit, _exited),
    (ModuleNotFoundError, _missing_module),
    (OSError, _os_error),
    (MemoryError, _memory),
)
"""First match wins. What is in no row is a defect."""
