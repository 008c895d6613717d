"""Options that several commands share, declared once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

_HUB = "Hub"
_OUTPUT = "Output"
VERIFICATION = "Verification"

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.", rich_help_panel=_OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.", rich_help_panel=_OUTPUT)]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show tracebacks and what other libraries say.", rich_help_panel=_OUTPUT)
]


def _tolerance(value: float | None) -> float | None:
    if value is not None and not (value >= 0 and math.isfinite(value)):
        raise typer.BadParameter(f"seen {value}; expected a finite number from 0")
    return value


Rtol = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        callback=_tolerance,
        help="Relative part of the allowed difference.",
        rich_help_panel=VERIFICATION,
    ),
]
Atol = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        callback=_tolerance,
        help="Absolute part of the allowed difference.",
        rich_help_panel=VERIFICATION,
    ),
]
SuiteName = Annotated[
    str | None,
    typer.Option(
        "--suite", metavar="quick|standard|full", help="Collection of test cases.", rich_help_panel=VERIFICATION
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
    typer.Option("--annotate", help="Failures as workflow annotations on stderr.", rich_help_panel=_OUTPUT),
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
    bool, typer.Option("--offline", help="Never touch the network; use what is cached.", rich_help_panel=_HUB)
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Run Python code that the checkpoint brings.", rich_help_panel=_HUB),
]
