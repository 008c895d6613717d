"""`onnxport verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, get_args

import typer

from onnxport.exporters.cli.chatter import hushed
from onnxport.exporters.cli.console import Console
from onnxport.exporters.cli.options import (
    VERIFICATION,
    AsJson,
    Atol,
    CacheDir,
    Debug,
    Offline,
    Quiet,
    Revision,
    Rtol,
    SuiteName,
    Token,
    TrustRemoteCode,
)
from onnxport.exporters.cli.verdict import show_report

EXAMPLES = (
    "Examples:\n\n"
    "onnxport verify bundles/minilm\n\n"
    "onnxport verify bundles/minilm --against sentence-transformers/all-MiniLM-L6-v2 --suite full\n\n"
    "onnxport verify bundles/minilm --variant optimized --report report.json --json"
)


def verify(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder of the bundle.")],
    against: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Compare with this PyTorch model, not with the golden tensors. Needs the export extra.",
            rich_help_panel=VERIFICATION,
        ),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Default: every variant. Repeatable.", rich_help_panel=VERIFICATION),
    ] = None,
    suite: SuiteName = None,
    rtol: Rtol = None,
    atol: Atol = None,
    provider: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Execution provider, like CPUExecutionProvider.", rich_help_panel=VERIFICATION
        ),
    ] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Also write the report there (.json). Repeatable.", rich_help_panel="Output"),
    ] = None,
    revision: Revision = None,
    token: Token = None,
    cache_dir: CacheDir = None,
    offline: Offline = False,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Check that a bundle computes what it was verified to compute.

    Without --against, the golden tensors stored in the bundle are the reference,
    and neither torch nor transformers is needed. The exit code is 1 if a check
    failed.
    """
    from onnxport.exporters.hub_options import HubOptions

    console = Console(quiet=quiet, as_json=as_json)
    _refuse_unknown_suite(suite)
    for path in report or []:
        _refuse_report_path(path)
    with hushed(debug=debug):
        from onnxport.exporters.bundle import load_bundle
        from onnxport.exporters.verification import verify_bundle

        loaded = load_bundle(bundle)
        reference, cases = None, None
        if against is not None:
            from onnxport.exporters.reference import reference_for

            hub = HubOptions(revision, token, cache_dir, offline, trust_remote_code)
            with console.stage("Reference"):
                reference, cases = reference_for(loaded, against, hub, suite)
        with console.stage("Verify"):
            result = verify_bundle(
                loaded,
                reference=reference,
                cases=cases,
                variants=variant,
                suite=suite,
                rtol=rtol,
                atol=atol,
                provider=provider,
            )
    document = result.model_dump(mode="json")
    for path in report or []:
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    show_report(console, result)
    console.document(document)
    return 0 if result.verdict == "pass" else 1


def _refuse_unknown_suite(suite: str | None) -> None:
    from onnxport.exporters.recipe import Suite
    from onnxport.exporters.suggestion import expected_one_of

    if suite is not None and suite not in get_args(Suite):
        raise typer.BadParameter(f"seen {suite!r}; {expected_one_of(suite, get_args(Suite))}", param_hint="--suite")


def _refuse_report_path(path: Path) -> None:
    """Before the checks run: minutes of work should not end with a file that cannot be written."""
    if path.suffix != ".json":
        raise typer.BadParameter(f"seen {str(path)!r}; reports are written as .json", param_hint="--report")
    if not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"{str(path.parent)!r} is no folder; create it first", param_hint="--report")
