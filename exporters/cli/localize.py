"""`onnxport localize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxport.exporters.cli.chatter import hushed
from onnxport.exporters.cli.console import Console
from onnxport.exporters.cli.localization_view import show_localization, show_other_failures
from onnxport.exporters.cli.options import (
    FLAG,
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
    VariantNames,
    find_factories_here,
    utf8,
)
from onnxport.exporters.cli.verify import known_suite

EXAMPLES = (
    "Examples:\n\n"
    "onnxport localize bundles/minilm --against sentence-transformers/all-MiniLM-L6-v2\n\n"
    "onnxport localize out.failed --against ./checkpoint --variant optimized --case padding.left\n\n"
    "onnxport localize out.failed --against ./checkpoint --out wrong-layer; python wrong-layer/base/reproduce.py"
)


def localize(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder of the bundle.", callback=utf8)],
    against: Annotated[
        str,
        typer.Option(
            metavar="SOURCE", help="The PyTorch model it was made from.", callback=utf8, rich_help_panel=VERIFICATION
        ),
    ],
    component: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which graph, where the model has several (decoder_model).",
            rich_help_panel=VERIFICATION,
        ),
    ] = None,
    variant: VariantNames = None,
    suite: SuiteName = None,
    case: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Case to compare layers on. Default: the smallest that fails.",
            rich_help_panel=VERIFICATION,
        ),
    ] = None,
    rtol: Rtol = None,
    atol: Atol = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where the reproduction goes, if anything diverges. Default: BUNDLE.localize.",
            rich_help_panel="Output",
        ),
    ] = None,
    all_layers: Annotated[
        bool, typer.Option("--all", metavar=FLAG, help="Show layers that agree too.", rich_help_panel="Output")
    ] = False,
    revision: Revision = None,
    token: Token = None,
    cache_dir: CacheDir = None,
    offline: Offline = False,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Find the first layer, or the optimisation pass, where a bundle leaves PyTorch.

    Every layer is compared as the graph runs and alone, on PyTorch's own inputs of
    it: a new error is told from an inherited one. The first wrong layer is written
    to a small folder with a script that shows it without torch. The exit code is 1
    if anything diverges, and 2 if no layer could be compared.
    """
    from onnxport.exporters.hub_options import HubOptions

    console = Console(quiet=quiet, as_json=as_json)
    suite_name = known_suite(suite)
    folder = out if out is not None else bundle.absolute().with_name(f"{bundle.absolute().name}.localize")
    find_factories_here(against)
    with hushed(debug=debug):
        from onnxport.exporters.bundle import load_bundle

        loaded = load_bundle(bundle)
        from onnxport.exporters.localization.search import localize as search

        result = search(
            loaded,
            against,
            HubOptions(revision, token, cache_dir, offline, trust_remote_code),
            folder,
            component=component,
            variants=variant,
            suite=suite_name,
            case=case,
            rtol=rtol,
            atol=atol,
            progress=console,
        )
    show_localization(console, result, folder, all_layers=all_layers)
    if result.verdict != "diverges":
        show_other_failures(console, loaded)
    console.document(result.model_dump(mode="json"))
    return {"agrees": 0, "diverges": 1, "unmatched": 2}[result.verdict]
