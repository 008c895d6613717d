"""The Typer application, and the one place where what a command did becomes an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from onnxport.exporters.cli import env, export, inspect, localize, recipes, verify
from onnxport.exporters.cli.console import Console
from onnxport.exporters.cli.failures import INTERRUPTED, explain, interrupted

app = typer.Typer(
    name="onnxport",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Exit codes: 0 done or agrees, 1 disagrees, 2 usage or tool error. Each command's --help has an example.",
)
app.command(epilog=export.EXAMPLES)(export.export)
app.command(epilog=verify.EXAMPLES)(verify.verify)
app.command(epilog=localize.EXAMPLES)(localize.localize)
app.command(epilog=inspect.EXAMPLES)(inspect.inspect)
app.command(epilog=recipes.EXAMPLES)(recipes.recipes)
app.command(epilog=env.EXAMPLES)(env.env)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        Console().data(f"onnxport {version('onnxport')}")
        raise typer.Exit


@app.callback()
def onnxport(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Checkpoint in, verified ONNX Runtime deployment bundle out."""


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code: 0, 1 (disagrees), 2 (error) or 130 (interrupted).

    `--json` and `--debug` are looked for here too, because they decide how a command line is refused that was never
    parsed to the end.
    """
    console = Console(as_json="--json" in arguments)
    try:
        code = app(list(arguments) or ["--help"], prog_name="onnxport", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the end of the line: everything becomes one message
        failure = explain(error)
        if "--debug" in arguments:
            console.traceback(error)
    else:
        if code != INTERRUPTED:
            return int(code or 0)
        failure = interrupted()  # Typer has caught it already
    console.failure(failure)
    return failure.exit_code
