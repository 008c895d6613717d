"""The command line `onnxport`: parses, calls the library once, renders. Importing it loads nothing heavy."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Entry point of the `onnxport` command."""
    from onnxport.exporters.cli.standard_streams import open_closed_streams

    stdout_is_open = open_closed_streams()
    from onnxport.exporters.cli.app import finish, refuse_closed_stdout, run

    for stream in (sys.stdout, sys.stderr):  # a name that the terminal cannot show must not end the command
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    code = finish(run(sys.argv[1:])) if stdout_is_open else refuse_closed_stdout()
    # Everything is written and closed; taking torch apart object by object would take most of a second.
    os._exit(code)
