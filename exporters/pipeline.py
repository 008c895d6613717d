"""The whole flow: source -> module -> graph -> variants -> verification -> bundle."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from onnxport.exporters.bundle import Bundle, load_bundle, seal, variant_entry
from onnxport.exporters.engines import Engine, choose_engine
from onnxport.exporters.errors import BundleError, RecipeError, SignatureError, VerificationFailed
from onnxport.exporters.exportable import Exportable
from onnxport.exporters.graph import Graph
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.manifest import Component, Manifest, Preprocessing, Source, VariantEntry, Verification
from onnxport.exporters.onnx_writer import write_model
from onnxport.exporters.progress import SILENT, Progress
from onnxport.exporters.recipe import Recipe, check_required_fusions
from onnxport.exporters.reference import Recording, record, with_float64, with_invariants
from onnxport.exporters.staging import Staging
from onnxport.exporters.suggestion import expected_one_of
from onnxport.exporters.tokenizer_evidence import check_tokenizer, record_tokenizer
from onnxport.exporters.toolchain import toolchain
from onnxport.exporters.variants import KINDS, VariantBuilder
from onnxport.exporters.variants.child import Children
from onnxport.exporters.verification import subjects
from onnxport.verify import Report, save_golden, select_golden, verify_subject
from onnxport.verify.contract import GraphContract
from onnxport.verify.report import CheckResult
from onnxport.verify.suites import checks_at_export, in_suite, measures_noise
from onnxport.verify.tokenizer_record import TokenizerRecord

COMPONENT = "model"
GOLDEN = "verification/golden.safetensors"
TOKENIZER = "verification/tokenizer.json"
REPORT = "verification/report.json"


@dataclass(frozen=True)
class _Traced:
    """What is left of the module once it is released: its graph and what it answered."""

    graph: Graph
    builder: VariantBuilder
    prepared: Future[None]
    source: Source
    preprocessing: Preprocessing
    mask: str | None
    decisions: Mapping[str, int]
    example: Mapping[str, int]
    recording: Recording | None
    tokenizer: TokenizerRecord | None


def export(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    recipe: Recipe | None = None,
    hub: HubOptions | None = None,
    overwrite: bool = False,
    verify: bool = True,
    progress: Progress = SILENT,
) -> Bundle:
    """Exports a checkpoint or plain module into a verified bundle.

    Args:
        source: a checkpoint folder, a Hub id, or "package.module:factory" (see `plain_module`).
        out: the folder to make. It is written in one move at the end: a run that fails leaves nothing behind.
        recipe: what to make; None: the defaults.
        hub: how the source is fetched.
        overwrite: replace the bundle that is at `out`.
        verify: compare every variant with PyTorch. Without it, bundle.json says "skip" and has no golden tensors.
        progress: is told of every stage.

    Returns:
        The bundle at `out`.

    Raises:
        VerificationFailed: a variant does not agree with PyTorch. `out` is as it was; what was made is in `out.failed`.
        RecipeError, SourceError, TaskError, SignatureError: the request does not make sense.
        EngineError, ReadBackError, VariantError: a step failed.
        BundleError: `out` cannot be written.
    """
    recipe, hub = recipe or Recipe(), hub or HubOptions()
    engine = choose_engine(recipe)
    _check_variants(recipe)
    _keep_apart(Path(source), Path(out))
    tolerance = {"rtol": recipe.tolerance.rtol, "atol": recipe.tolerance.atol}
    recipe = recipe.model_copy(update={"engine": engine.name, "variants": _variants(recipe), **tolerance})
    with Staging(Path(out), overwrite) as staging, ThreadPoolExecutor(1) as beside, Children() as children:
        traced = _trace(str(source), recipe, hub, engine, staging, beside, children, verify=verify, progress=progress)
        recipe = recipe.model_copy(update={"task": traced.source.task})
        entries = _build_variants(traced, recipe, staging, progress)
        manifest = _manifest(traced, recipe, engine, entries)
        report = _verify(traced, manifest, staging.path, hub, progress) if traced.recording is not None else None
        with progress.stage("Bundle") as stage:
            if report is not None:
                (staging.path / REPORT).write_text(report.to_json(), encoding="utf-8")
                manifest = _with_verdict(manifest, report)
            sealed = seal(staging.path, manifest)
            stage.size(sum(record.size_bytes for record in sealed.files))
        if report is not None and report.verdict == "fail":
            raise _failed(report, staging, out)
        return load_bundle(staging.commit())


def _failed(report: Report, staging: Staging, out: str | os.PathLike[str]) -> VerificationFailed:
    """Keeps the failed bundle. Where that cannot be done, the report is still the answer."""
    kept: Path | None = None
    try:
        kept = staging.commit_failed()
        told = f"the failed bundle is in {kept.name}"
    except (BundleError, OSError) as e:
        told = f"the failed bundle could not be kept: {e}"
    return VerificationFailed(f"{_summary(report)}; {out} is as it was, {told}", report=report, path=kept)


def _keep_apart(source: Path, out: Path) -> None:
    """OUT is replaced whole: a checkpoint in it would go with it."""
    try:
        inside = source.exists() and source.resolve().is_relative_to(out.resolve())
    except (OSError, ValueError):  # a source that is no path
        return
    if inside:
        raise BundleError(f"{out} is the source or contains it; choose an OUT of its own")


def _check_variants(recipe: Recipe) -> None:
    unknown = [name for name in recipe.variants if name not in KINDS]
    if unknown:
        raise RecipeError(f"unknown variant {unknown[0]!r}: {expected_one_of(unknown[0], KINDS)}")
    check_required_fusions(recipe)


def _variants(recipe: Recipe) -> tuple[str, ...]:
    """`base` is always kept; the rest in the order of the table, whatever the order asked."""
    return tuple(name for name in KINDS if name == "base" or name in recipe.variants)


def _trace(
    source: str,
    recipe: Recipe,
    hub: HubOptions,
    engine: Engine,
    staging: Staging,
    beside: Executor,
    children: Children,
    *,
    verify: bool,
    progress: Progress,
) -> _Traced:
    # torch and transformers load from here on: a request that makes no sense has failed by now.
    from onnxport.exporters.loading import load
    from onnxport.exporters.read_back import check_written
    from onnxport.exporters.signature import probe_contract

    with progress.stage("Load") as stage:
        loaded = load(source, recipe, hub, engine.attention)
        exportable = loaded.exportable
        for note in exportable.notes:
            stage.note(note)
    with progress.stage(f"Export with {engine.name}, opset {recipe.opset}") as stage:
        contract = probe_contract(exportable, recipe.opset)
        traced = engine.load()(exportable, contract)
        path = KINDS["base"].path(staging.path, COMPONENT)
        write_model(traced.skeleton, traced.weights, path, external_data=recipe.external_data)
        del traced
        check_written(path, contract)
        stage.size(sum(file.stat().st_size for file in path.parent.iterdir()))
    graph = Graph(COMPONENT, path, contract, exportable.hints)
    builder = VariantBuilder(
        graph, staging.path, staging.work, recipe.level, recipe.target, recipe.external_data, children
    )
    # Fusion runs in a child process: there is no need to wait for it before PyTorch runs the cases.
    prepared = beside.submit(builder.prepare, recipe.variants)
    files = loaded.copy_files(staging.path)
    recording = _record(exportable, contract, recipe, staging.path, progress) if verify else None
    tokenizer = record_tokenizer(loaded.tokenizer) if verify and loaded.tokenizer is not None else None
    if tokenizer is not None:
        (staging.path / TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")
    return _Traced(
        graph=graph,
        builder=builder,
        prepared=prepared,
        source=exportable.source,
        preprocessing=exportable.preprocessing.model_copy(update={"files": files}),
        mask=exportable.mask,
        decisions=exportable.decisions,
        example=exportable.example,
        recording=recording,
        tokenizer=tokenizer,
    )


def _record(
    exportable: Exportable, contract: GraphContract, recipe: Recipe, root: Path, progress: Progress
) -> Recording:
    cases = exportable.cases(recipe.suite)
    with progress.stage(f"Reference: {len(cases)} cases in PyTorch") as stage:
        recording = record(exportable, cases, stage.advance)
        if in_suite("rows.independent", checks_at_export(recipe.suite)):
            recording = with_invariants(recording, exportable, contract, recipe)
        if measures_noise(recipe.suite):
            recording = with_float64(recording, exportable)
        for name, reason in recording.refused.items():
            stage.note(f"case {name} left out: {reason}")
        (root / GOLDEN).parent.mkdir()
        golden = select_golden(recording.cases, recording.runner.outputs)
        save_golden(root / GOLDEN, golden, recording.runner.outputs)
        stage.size((root / GOLDEN).stat().st_size)
    return recording


def _build_variants(traced: _Traced, recipe: Recipe, staging: Staging, progress: Progress) -> dict[str, VariantEntry]:
    entries = {}
    for name in recipe.variants:
        with progress.stage(f"Variant {name}") as stage:
            if name != "base":
                traced.prepared.result()
            variant = traced.builder.build(name)
            for note in variant.notes:
                stage.note(note)
            entries[name] = variant_entry(variant, staging.path)
            stage.size(entries[name].size_bytes)
    return entries


def _manifest(traced: _Traced, recipe: Recipe, engine: Engine, entries: Mapping[str, VariantEntry]) -> Manifest:
    contract = traced.graph.contract
    axes = dict(contract.axes)
    if traced.recording is not None:
        proven = _proven_sizes(traced)
        axes = {name: axis.model_copy(update={"proven": proven[name]}) for name, axis in axes.items()}
    return Manifest(
        source=traced.source,
        toolchain=toolchain(engine.name),
        recipe=recipe,
        components={
            COMPONENT: Component(
                inputs=contract.inputs,
                outputs=contract.outputs,
                axes=axes,
                vocabularies=contract.vocabularies,
                variants=dict(entries),
            )
        },
        preprocessing=traced.preprocessing,
        verification=Verification(
            verdict="skip",
            suite=recipe.suite,
            rtol=recipe.tolerance.rtol,
            atol=recipe.tolerance.atol,
            mask=traced.mask,
            decisions=dict(traced.decisions),
            golden=GOLDEN if traced.recording is not None else None,
            tokenizer=TOKENIZER if traced.tokenizer is not None else None,
            invariants=None if traced.recording is None else traced.recording.invariants,
        ),
        files=(),
    )


def _proven_sizes(traced: _Traced) -> dict[str, tuple[int, ...]]:
    """The sizes of each axis among the cases.

    Raises:
        SignatureError: an axis was never run at a size other than the traced one, so nothing shows that it is dynamic.
    """
    assert traced.recording is not None
    contract = traced.graph.contract
    sizes: dict[str, set[int]] = {axis: set() for axis in contract.axes}
    for case in traced.recording.cases:
        for spec in contract.inputs:
            for dim, size in zip(spec.shape, case.inputs[spec.name].shape, strict=True):
                if isinstance(dim, str):
                    sizes[dim].add(size)
    for axis, seen in sizes.items():
        if contract.axes[axis].fixed is None and not seen - {traced.example[axis]}:
            raise SignatureError(
                f"axis {axis!r} could not be shown to be dynamic: PyTorch itself fails at every size but "
                f"{traced.example[axis]}; fix it with --static {axis}={traced.example[axis]}"
            )
    return {axis: tuple(sorted(seen)) for axis, seen in sizes.items()}


def _verify(traced: _Traced, manifest: Manifest, root: Path, hub: HubOptions, progress: Progress) -> Report:
    recipe, recording = manifest.recipe, traced.recording
    assert recording is not None
    suite = checks_at_export(recipe.suite)
    checks: list[CheckResult] = [*recording.checks]
    if traced.tokenizer is not None and in_suite("tokenizer.match", recipe.suite):
        checks += check_tokenizer(root, traced.tokenizer, trust_remote_code=hub.trust_remote_code)
    for subject in subjects(root, manifest):
        with progress.stage(f"Verify {subject.variant}"):
            checks += verify_subject(subject, recording.runner, recording.cases, suite=suite)
    return Report.of(checks, recipe.tolerance)


def _with_verdict(manifest: Manifest, report: Report) -> Manifest:
    verification = manifest.verification.model_copy(update={"verdict": report.verdict, "report": REPORT})
    return manifest.model_copy(update={"verification": verification})


def _summary(report: Report) -> str:
    failed: Sequence[CheckResult] = [check for check in report.checks if check.verdict == "fail"]
    variants = list(dict.fromkeys(check.variant or "the bundle" for check in failed))
    if not failed:
        return f"verification failed: {report.detail}"
    return f"verification failed: {len(failed)} of {len(report.checks)} checks, in {', '.join(variants)}"
