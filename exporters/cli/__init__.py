"""The command line `onnxport`: parses, calls the library once, renders. Importing it loads nothing heavy."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `onnxport` command."""
    from onnxport.exporters.cli.app import run

    for stream in (sys.stdout, sys.stderr):  # a name that the terminal cannot show must not end the command
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))
