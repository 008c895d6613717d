"""`onnxport verify`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from onnxport.exporters.cli.chatter import hushed
from onnxport.exporters.cli.console import Console
from onnxport.exporters.cli.flag_syntax import number
from onnxport.exporters.cli.options import (
    FLAG,
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
    VariantNames,
    find_factories_here,
    not_negative,
    utf8,
)
from onnxport.exporters.cli.report_files import print_annotations, refuse_unwritable, write_reports
from onnxport.exporters.cli.verdict import as_document, show_report

if TYPE_CHECKING:
    from onnxport.exporters.bundle import Bundle
    from onnxport.exporters.hub_options import HubOptions
    from onnxport.exporters.recipe import Suite
    from onnxport.verify.report import Report

EXAMPLES = (
    "Examples:\n\n"
    "onnxport verify bundles/minilm\n\n"
    "onnxport verify bundles/minilm --against sentence-transformers/all-MiniLM-L6-v2 --suite full\n\n"
    "onnxport verify bundles/minilm --variant optimized --report report.html --report junit.xml --json\n\n"
    "onnxport verify bundles/minilm --latency --report latency.html\n\n"
    "onnxport verify bundles/reviews --dataset reviews.csv --max-loss 0.005 --variant int8\n\n"
    "onnxport verify model.onnx --against ./checkpoint --task text-classification\n\n"
    "onnxport verify onnx/decoder_with_past_model.onnx --against ./checkpoint\n\n"
    "onnxport verify prompt.onnx --against ./checkpoint --component decoder_model"
)


def verify(
    bundle: Annotated[
        Path,
        typer.Argument(metavar="BUNDLE", help="Folder of the bundle; or any ONNX file, with --against.", callback=utf8),
    ],
    against: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Compare with this PyTorch model, not with the golden tensors. Needs the export extra.",
            callback=utf8,
            rich_help_panel=VERIFICATION,
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            help="What an ONNX file is for. Default: what the checkpoint says; a bundle records it.",
            rich_help_panel=VERIFICATION,
        ),
    ] = None,
    component: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which graph of the model an ONNX file is (decoder_model). Default: the one it is named after.",
            rich_help_panel=VERIFICATION,
        ),
    ] = None,
    variant: VariantNames = None,
    suite: SuiteName = None,
    case: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Replay this case alone.", rich_help_panel=VERIFICATION),
    ] = None,
    rtol: Rtol = None,
    atol: Atol = None,
    dataset: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Labelled examples (.csv, .tsv, .jsonl; pictures or sounds: a folder with one for each label): is the "
            "task done as well as by PyTorch (--against) or by base? Needs the metrics extra.",
            callback=utf8,
            rich_help_panel=VERIFICATION,
        ),
    ] = None,
    max_loss: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            parser=number,
            callback=not_negative,
            help="By how much a score on the data set may be lower. Default: 0.01.",
            rich_help_panel=VERIFICATION,
        ),
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Execution provider, one that `onnxport env` lists. Default: CPUExecutionProvider.",
            rich_help_panel=VERIFICATION,
        ),
    ] = None,
    latency: Annotated[
        bool,
        typer.Option(
            "--latency",
            metavar=FLAG,
            help="Also time every variant, in a process of its own, on the smallest, a middle and the largest case. A "
            "measurement: it changes no verdict.",
            rich_help_panel=VERIFICATION,
        ),
    ] = False,
    revision: Revision = None,
    token: Token = None,
    cache_dir: CacheDir = None,
    offline: Offline = False,
    trust_remote_code: TrustRemoteCode = False,
    reports: Reports = None,
    annotate: Annotate = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Check that a bundle computes what it was verified to compute.

    Without --against, the golden tensors stored in the bundle are the reference,
    and neither torch nor transformers is needed. The exit code is 1 if a check
    failed. An ONNX file that is in no bundle is compared with the model it was
    made from, or with the graph of it that the file is named after
    (encoder_model.onnx); inputs and outputs are matched by name.
    """
    from onnxport.exporters.hub_options import HubOptions

    console = Console(quiet=quiet, as_json=as_json)
    chosen_suite = known_suite(suite)
    refuse_unwritable(reports or [], bundle)
    hub = HubOptions(revision, token, cache_dir, offline, trust_remote_code)
    manifest = None
    if max_loss is not None and dataset is None:
        raise typer.BadParameter("there is no data set to lose anything on; add --dataset", param_hint="--max-loss")
    if against is not None:
        find_factories_here(against)
    with hushed(debug=debug):
        if bundle.is_file():
            if dataset is not None:
                told = (
                    f"{bundle} is a file, which does not say how texts become its inputs; give the folder of a bundle"
                )
                raise typer.BadParameter(told, param_hint="--dataset")
            source = _source_of(bundle, against, variant)
            result = _verify_file(
                console,
                bundle,
                source,
                hub,
                task=task,
                component=component,
                suite=chosen_suite,
                case=case,
                rtol=rtol,
                atol=atol,
                provider=provider,
                latency=latency,
            )
        else:
            from onnxport.exporters.bundle import load_bundle
            from onnxport.exporters.errors import BundleError

            if not bundle.exists():
                raise BundleError(
                    f"{bundle} does not exist; give the folder of a bundle, or an ONNX file with --against SOURCE."
                )
            loaded = load_bundle(bundle)
            if task is not None:
                raise typer.BadParameter("a bundle records its task; leave it out", param_hint="--task")
            if component is not None:
                told = "a bundle is verified whole; leave it out, or give the file of one graph"
                raise typer.BadParameter(told, param_hint="--component")
            manifest = loaded.manifest
            result = _verify_bundle(
                console,
                loaded,
                against,
                hub,
                variants=variant,
                suite=chosen_suite,
                case=case,
                dataset=dataset,
                max_loss=max_loss,
                rtol=rtol,
                atol=atol,
                provider=provider,
                latency=latency,
            )
    write_reports(reports or [], result)
    show_report(console, result)
    if annotate:
        print_annotations(console, result, bundle, manifest)
    console.document(as_document(result))
    return 0 if result.verdict == "pass" else 1


def _verify_bundle(
    console: Console,
    loaded: Bundle,
    against: str | None,
    hub: HubOptions,
    *,
    variants: list[str] | None,
    suite: Suite | None,
    case: str | None,
    dataset: Path | None,
    max_loss: float | None,
    provider: str | None,
    latency: bool,
    **options: Any,
) -> Report:
    from onnxport.exporters.verification import measure_bundle_latency, verify_bundle

    question = None
    if dataset is not None:
        from onnxport.exporters.task_metrics.kept import MAX_LOSS, metric_question

        question = metric_question(loaded, dataset, MAX_LOSS if max_loss is None else max_loss)
    answered: list[list[Any]] = []
    answers = None
    notes: list[str] = []
    if against is not None:
        with console.stage("Reference in PyTorch") as stage:
            from onnxport.exporters.reference import answers_of_source

            ask = None if question is None else lambda runner: answered.append(question.ask(runner))
            answers = answers_of_source(loaded, against, hub, suite, case, ask)
            if answers.weights_sha256 != loaded.manifest.source.weights_sha256:
                notes.append(f"the weights of {Path(against).name} are not those the bundle was made from")
            for recording in answers.recordings.values():
                for refused, reason in recording.refused.items():
                    stage.note(f"case {refused} left out: {reason}")
    beside = list(answers.checks) if answers else []
    if question is not None:
        with console.stage(f"Metric: {question.metric.examples} examples of {question.dataset}"):
            pytorch = answered[0] if answered else None
            beside += question.verify(variants=variants, provider=provider, pytorch=pytorch)
    recordings = answers.recordings if answers else None
    with console.stage("Verify"):
        report = verify_bundle(
            loaded,
            recordings=recordings,
            generation=answers.generation if answers else None,
            beside=beside,
            variants=variants,
            case=case,
            suite=suite,
            provider=provider,
            **options,
        ).with_notes(notes)
    if not latency:
        return report
    with console.stage("Latency") as stage:
        measured, untimed = measure_bundle_latency(
            loaded, stage, recordings=recordings, variants=variants, case=case, provider=provider
        )
        return report.with_latency(measured).with_notes(untimed)


def _source_of(file: Path, against: str | None, variants: list[str] | None) -> str:
    """Returns what a file is to be compared with; refuses what only a bundle can be asked."""
    from onnxport.exporters.manifest import MANIFEST_NAME

    if against is None and (file.parent / MANIFEST_NAME).is_file():
        told = f"{file.parent} is a bundle: onnxport verify {shlex.quote(str(file.parent))}"
        raise typer.BadParameter(f"{told}. For {file.name} alone, give the model it comes from with --against SOURCE")
    if against is None:
        told = f"{file} is a file and no bundle: nothing in it says what it should compute"
        raise typer.BadParameter(f"{told}; give the folder of a bundle, or the model with --against SOURCE")
    if variants:
        raise typer.BadParameter(f"{file} is a file; only a bundle has variants", param_hint="--variant")
    return against


def _verify_file(
    console: Console,
    file: Path,
    against: str,
    hub: HubOptions,
    *,
    task: str | None,
    component: str | None,
    suite: Suite | None,
    case: str | None,
    rtol: float | None,
    atol: float | None,
    provider: str | None,
    latency: bool,
) -> Report:
    with console.stage("Reference in PyTorch") as stage:
        from onnxport.exporters.file_verification import ask_source, verify_file
        from onnxport.exporters.recipe import Recipe

        recipe = Recipe(task=task, suite=suite or "standard", rtol=rtol, atol=atol)
        question = ask_source(file, against, recipe, hub, component=component, case=case, provider=provider)
        for note in question.notes:
            stage.note(note)
        for refused, reason in question.recording.refused.items():
            stage.note(f"case {refused} left out: {reason}")
    with console.stage("Verify"):
        report = verify_file(question)
    if not latency:
        return report
    from onnxport.verify.errors import SessionError
    from onnxport.verify.latency import measure_latency

    with console.stage("Latency"):
        try:
            return report.with_latency(measure_latency(question.subject, question.cases))
        except SessionError as e:
            return report.with_latency(()).with_notes([f"{file.name} was not timed: {e}"])


def known_suite(name: str | None) -> Suite | None:
    """Returns the name as that of a suite; refuses any other."""
    from onnxport.exporters.recipe import Suite
    from onnxport.exporters.suggestion import expected_one_of

    suites: tuple[Suite, ...] = get_args(Suite)
    if name is not None and name not in suites:
        raise typer.BadParameter(f"seen {name!r}; {expected_one_of(name, suites)}", param_hint="--suite")
    return next((suite for suite in suites if suite == name), None)
