"""`onnxport inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxport.exporters.cli.chatter import hushed
from onnxport.exporters.cli.console import Console
from onnxport.exporters.cli.flag_syntax import count
from onnxport.exporters.cli.inspection_view import show_inspection
from onnxport.exporters.cli.options import AsJson, Debug, Quiet

EXAMPLES = (
    "Examples:\n\n"
    "onnxport inspect bundles/minilm\n\n"
    "onnxport inspect model.onnx --top 20\n\n"
    "onnxport inspect model.onnx --json"
)


def inspect(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A bundle, or any ONNX file.")],
    top: Annotated[int, typer.Option(metavar="N", parser=count, help="Operators to list per graph.")] = 10,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Show inputs, outputs, axes, operators, fusions and sizes of a bundle or ONNX file."""
    console = Console(quiet=quiet, as_json=as_json)
    with hushed(debug=debug, onnxruntime=False):
        from onnxport.exporters.inspection import inspect as look

        seen = look(path)
    show_inspection(console, seen, top=top)
    console.document(seen.model_dump(mode="json"))
    return 0
