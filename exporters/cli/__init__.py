"""The command line `onnxport`: parses, calls the library once, renders. Importing it loads nothing heavy."""

from __future__ import annotations

import contextlib
import os
import sys


def main() -> None:
    """Entry point of the `onnxport` command."""
    from onnxport.exporters.cli.app import run

    for stream in (sys.stdout, sys.stderr):  # a name that the terminal cannot show must not end the command
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a reader that has gone
            stream.flush()
    # Everything is written and closed; taking torch apart object by object would take most of a second.
    os._exit(code)
