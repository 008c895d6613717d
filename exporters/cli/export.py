"""`onnxport export`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from onnxport.exporters.cli.chatter import hushed
from onnxport.exporters.cli.console import Console
from onnxport.exporters.cli.flag_syntax import parse_axes, parse_required_fusions, parse_static, whole_number
from onnxport.exporters.cli.options import (
    FLAG,
    VARIANTS,
    VERIFICATION,
    Annotate,
    AsJson,
    Atol,
    CacheDir,
    Debug,
    Offline,
    Quiet,
    Reports,
    Revision,
    Rtol,
    SuiteName,
    Token,
    TrustRemoteCode,
    find_factories_here,
    utf8,
)
from onnxport.exporters.cli.report_files import print_annotations, refuse_unwritable, write_reports
from onnxport.exporters.cli.verdict import as_document, show_report

EXAMPLES = (
    "Examples:\n\n"
    "onnxport export sentence-transformers/all-MiniLM-L6-v2 bundles/minilm\n\n"
    "onnxport export ./checkpoint out --variant optimized --variant int8 --require-fusion Attention=6\n\n"
    "onnxport export ./checkpoint out --axes input_ids=batch,sequence --static batch=1 --overwrite"
)

_GRAPH = "Graph"
_VARIANTS = "Variants"


def export(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A checkpoint folder, a Hub id, or package.module:factory.", callback=utf8
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of the bundle.", callback=utf8)],
    task: Annotated[
        str | None, typer.Option(metavar="TASK", help="Default: what the checkpoint says.", rich_help_panel=_GRAPH)
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="A shipped recipe or a YAML file; flags win.", rich_help_panel=_GRAPH),
    ] = None,
    opset: Annotated[
        int | None, typer.Option(metavar="N", parser=whole_number, help="Default: 17.", rich_help_panel=_GRAPH)
    ] = None,
    axes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT=AXIS,AXIS",
            help="An input's dimensions, each an axis name or a fixed size. Repeatable.",
            rich_help_panel=_GRAPH,
        ),
    ] = None,
    static: Annotated[
        list[str] | None,
        typer.Option(metavar="AXIS=N", help="Give an axis a fixed size. Repeatable.", rich_help_panel=_GRAPH),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(metavar="auto|torchscript|dynamo|optimum", help="Default: auto.", rich_help_panel=_GRAPH),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(metavar="float32|float16", help="Of the weights. Default: float32.", rich_help_panel=_GRAPH),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Keep an extra output, like hidden_states. Repeatable.", rich_help_panel=_GRAPH
        ),
    ] = None,
    split: Annotated[
        bool,
        typer.Option(
            "--split",
            metavar=FLAG,
            help="A component for each tower of a model that compares texts and images (text_model, vision_model).",
            rich_help_panel=_GRAPH,
        ),
    ] = False,
    merged: Annotated[
        bool,
        typer.Option(
            "--merged",
            metavar=FLAG,
            help="Of an encoder-decoder model, also decoder_model_merged: both graphs of the decoder in one.",
            rich_help_panel=_GRAPH,
        ),
    ] = False,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"{VARIANTS}; base is always kept. Default: base and optimized. Repeatable.",
            rich_help_panel=_VARIANTS,
        ),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            metavar="none|basic|extended|all",
            help="ONNX Runtime's graph optimisation. Default: extended.",
            rich_help_panel=_VARIANTS,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="portable|this-machine",
            help="Whether passes tied to this CPU are allowed. Default: portable.",
            rich_help_panel=_VARIANTS,
        ),
    ] = None,
    external_data: Annotated[
        str | None,
        typer.Option(
            metavar="auto|always|never",
            help="Weights in a file beside the graph. Default: auto.",
            rich_help_panel=_VARIANTS,
        ),
    ] = None,
    require_fusion: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OP[=N]", help="Fail unless optimized has N (or 1) of it. Repeatable.", rich_help_panel=_VARIANTS
        ),
    ] = None,
    rtol: Rtol = None,
    atol: Atol = None,
    suite: SuiteName = None,
    no_verify: Annotated[
        bool,
        typer.Option(
            "--no-verify", metavar=FLAG, help="Skip the verification; the bundle says so.", rich_help_panel=VERIFICATION
        ),
    ] = False,
    revision: Revision = None,
    token: Token = None,
    cache_dir: CacheDir = None,
    offline: Offline = False,
    trust_remote_code: TrustRemoteCode = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", metavar=FLAG, help="Replace the bundle that OUT is.", rich_help_panel="Output"),
    ] = False,
    reports: Reports = None,
    annotate: Annotate = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Export a checkpoint into a verified bundle.

    The bundle holds the graphs, the tokenizer and preprocessing files, a
    bundle.json with a hash of every file, and the evidence that the graphs
    compute what the PyTorch model computes. If they do not, OUT stays as it was,
    what was built is kept as OUT.failed, and the exit code is 1.
    """
    from onnxport.exporters.hub_options import HubOptions
    from onnxport.exporters.recipe import Recipe
    from onnxport.exporters.recipe_file import load_recipe, override
    from onnxport.exporters.staging import require_apart, require_replaceable

    console = Console(quiet=quiet, as_json=as_json)
    if no_verify and (reports or annotate):
        raise typer.BadParameter("there is nothing to report with --no-verify", param_hint="--report/--annotate")
    refuse_unwritable(reports or [], out)
    wanted = override(
        load_recipe(recipe) if recipe is not None else Recipe(),
        task=task,
        opset=opset,
        axes=parse_axes(axes or []),
        static=parse_static(static or []),
        engine=engine,
        dtype=dtype,
        outputs=output,
        split=split or None,
        merged=merged or None,
        variants=variant,
        level=level,
        target=target,
        external_data=external_data,
        require_fusion=parse_required_fusions(require_fusion or []),
        rtol=rtol,
        atol=atol,
        suite=suite,
    )
    # Asked again when it is made; here before torch is loaded, which takes seconds.
    require_apart(Path(source), out)
    require_replaceable(Path(os.path.abspath(out)), overwrite)
    hub = HubOptions(revision, token, cache_dir, offline, trust_remote_code)
    find_factories_here(source)
    # PyTorch runs the cases while a child process fuses the graph: threads that wait must not keep the cores busy.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    failure = None
    with hushed(debug=debug):
        from onnxport.exporters.bundle import load_bundle
        from onnxport.exporters.errors import VerificationFailed
        from onnxport.exporters.pipeline import export as export_bundle

        try:
            bundle = export_bundle(
                source, out, recipe=wanted, hub=hub, overwrite=overwrite, verify=not no_verify, progress=console
            )
            report = bundle.report()
        except VerificationFailed as failed:
            failure = failed
    # Only from here on does stdout lead out.
    if failure is not None:
        named = failure.report.with_name(out.resolve().name)
        write_reports(reports or [], named)
        show_report(console, named)
        if annotate:
            kept = None if failure.path is None else out.with_name(failure.path.name)
            print_annotations(console, failure.report, kept, load_bundle(kept).manifest if kept else None)
        console.note(str(failure))
        kept_at = None if failure.path is None else str(failure.path)
        console.document({"bundle": None, "failed_bundle": kept_at, "report": as_document(named)})
        return 1
    if report is not None:
        report = report.with_name(out.resolve().name)
        write_reports(reports or [], report)
        show_report(console, report)
        if annotate:
            print_annotations(console, report, out, bundle.manifest)
    if report is None:
        console.data(f"{out} is written, NOT verified")
    elif not quiet:
        console.data(f"{out} is written")
    console.document(
        {
            "bundle": str(out),
            "manifest": bundle.manifest.model_dump(mode="json"),
            "report": as_document(report) if report is not None else None,
        }
    )
    return 0
