"""Options that several commands share, declared once."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from onnxport.exporters.cli.flag_syntax import number

Name = TypeVar("Name", Path, str, str | None)

_HUB = "Hub"
_OUTPUT = "Output"
VERIFICATION = "Verification"

FLAG = ""
"""What the help shows for the value of an option that takes none; Typer would write <bool>."""

AsJson = Annotated[
    bool, typer.Option("--json", metavar=FLAG, help="One JSON document on stdout.", rich_help_panel=_OUTPUT)
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", metavar=FLAG, help="Failures and verdict only.", rich_help_panel=_OUTPUT)
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug", metavar=FLAG, help="Show tracebacks and what other libraries say.", rich_help_panel=_OUTPUT
    ),
]


def find_factories_here(source: str) -> None:
    """Lets "package.module:factory" lie in the current folder, searched after everything that is installed.

    Only for such a source: what lies in a folder where somebody verifies a bundle must not be imported.
    """
    from onnxport.exporters.source import is_factory

    if is_factory(source):
        sys.path.append("")


def utf8(name: Name) -> Name:
    """Returns the name. One whose bytes are no text is refused: JSON, ONNX Runtime and tokenizers cannot hold it."""
    if name is not None:
        shown = os.fsencode(name).decode(errors="backslashreplace")
        if shown != str(name):
            raise typer.BadParameter(f"seen '{shown}', whose bytes are not UTF-8; choose another name")
    return name


def not_negative(value: float | None) -> float | None:
    """Returns the number; refuses one that is below 0, infinite or none."""
    if value is not None and not (value >= 0 and math.isfinite(value)):
        raise typer.BadParameter(f"seen {value}; expected a finite number from 0")
    return value


VARIANTS = "base, optimized, ort, fp16 or int8"

Rtol = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        parser=number,
        callback=not_negative,
        help="Allowed relative difference of graphs in the dtype of the export. Default: "
        "0.001, for float16 0.01; for a bundle what it was exported with.",
        rich_help_panel=VERIFICATION,
    ),
]
Atol = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        parser=number,
        callback=not_negative,
        help="Allowed absolute difference of the same. Default: 0.0001, for float16 0.005; "
        "for a bundle what it was exported with.",
        rich_help_panel=VERIFICATION,
    ),
]
SuiteName = Annotated[
    str | None,
    typer.Option(
        "--suite",
        metavar="quick|standard|full",
        help="Test cases and checks. Default: standard; for a bundle that of its export.",
        rich_help_panel=VERIFICATION,
    ),
]
VariantNames = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        metavar="NAME",
        help=f"{VARIANTS}, as far as the bundle has it. Default: all. Repeatable.",
        rich_help_panel=VERIFICATION,
    ),
]
Reports = Annotated[
    list[Path] | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Also write the report: .json, .xml (JUnit), .md, .html. Repeatable.",
        rich_help_panel=_OUTPUT,
    ),
]
Annotate = Annotated[
    bool,
    typer.Option(
        "--annotate", metavar=FLAG, help="Failures as workflow annotations on stderr.", rich_help_panel=_OUTPUT
    ),
]

Revision = Annotated[
    str | None, typer.Option(metavar="REV", help="Branch, tag or commit on the Hub.", rich_help_panel=_HUB)
]
Token = Annotated[
    str | None,
    typer.Option(metavar="TOKEN", envvar="HF_TOKEN", show_envvar=True, help="Hub access token.", rich_help_panel=_HUB),
]
CacheDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Where downloads are kept.", rich_help_panel=_HUB)]
Offline = Annotated[
    bool,
    typer.Option("--offline", metavar=FLAG, help="Never touch the network; use what is cached.", rich_help_panel=_HUB),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code", metavar=FLAG, help="Run Python code that the checkpoint brings.", rich_help_panel=_HUB
    ),
]
