"""The Typer application, and the one place where what a command did becomes an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from onnxport.exporters.cli import env, export, inspect, localize, recipes, verify
from onnxport.exporters.cli.console import Console
from onnxport.exporters.cli.failures import INTERRUPTED, Failure, explain, interrupted
from onnxport.exporters.cli.options import FLAG
from onnxport.exporters.cli.standard_streams import writing
from onnxport.exporters.cli.stop_signals import stop_signals_raise

app = typer.Typer(
    name="onnxport",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
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
        typer.Option(
            "--version", metavar=FLAG, callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Checkpoint in, verified ONNX Runtime deployment bundle out."""


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code.

    0, 1 (disagrees), 2 (error), 130 (interrupted), 143 (SIGTERM) or 129 (SIGHUP). `--json` and `--debug` are looked for
    here too, because they decide how a command line is refused that was never parsed to the end.
    """
    console = Console(as_json="--json" in arguments)
    try:
        with stop_signals_raise():
            code = app(list(arguments) or ["--help"], prog_name="onnxport", standalone_mode=False)
    except BaseException as error:  # noqa: BLE001 - the end of the line: everything becomes one message
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
            return 0  # Typer's way of saying that nobody reads the help any more
        failure = explain(error)
        if "--debug" in arguments:
            console.traceback(error)
    else:
        if code != INTERRUPTED:
            return int(code or 0)
        failure = interrupted()  # Typer has caught it already
    console.failure(failure)
    return failure.exit_code


def refuse_closed_stdout() -> int:
    """Says so before minutes of work end with nowhere to tell the result."""
    failure = Failure("OSError", "standard output is closed; connect it, if only with /dev/null")
    Console().failure(failure)
    return failure.exit_code


def finish(code: int) -> int:
    """Flushes what has been printed and returns the exit code: 2 when some of it was lost that had seemed written."""
    try:
        with writing(sys.stdout, "standard output"):
            pass
    except OSError as error:
        failure = explain(error)
        Console().failure(failure)
        return code or failure.exit_code
    return code
