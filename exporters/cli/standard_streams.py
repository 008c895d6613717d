"""Standard streams as a shell may leave them: closed, full, or read by nobody."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO


def open_closed_streams() -> bool:
    """Connects closed standard streams with the null device; returns whether standard output was open.

    Left closed, the next file that is opened would take the stream's number, and whatever is printed end up in it.
    """
    stdout_was_open = sys.stdout is not None
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # opened under the lowest free number: this one
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    return stdout_was_open


@contextlib.contextmanager
def writing(stream: TextIO, name: str) -> Iterator[None]:
    """Flushes the stream at the end. From the first failure on, what is written to it goes nowhere.

    A reader that has left is none: after `onnxport inspect x | head` the exit code stays what it was.

    Raises:
        OSError: it cannot be written (a full disk); `name` says to a person what.
    """
    try:
        yield
        stream.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        if not isinstance(error, BrokenPipeError):
            raise OSError(error.errno, error.strerror, name) from error
