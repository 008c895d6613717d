"""The whole flow: source -> components -> graphs -> variants -> verification -> bundle."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.exporters.bundle import Bundle, load_bundle, seal
from onnxport.exporters.component_export import ComponentExport, Workplace, build, put_together, trace
from onnxport.exporters.engines import Engine, choose_engines
from onnxport.exporters.errors import BundleError, EngineError, ReadBackError, RecipeError, VerificationFailed
from onnxport.exporters.generation.check import check_generation
from onnxport.exporters.generation.evidence import GenerationEvidence, record_evidence, store_evidence
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.manifest import Manifest, Preprocessing, Source, Verification
from onnxport.exporters.progress import SILENT, Progress
from onnxport.exporters.recipe import Recipe, check_required_fusions
from onnxport.exporters.staging import Staging, require_apart
from onnxport.exporters.suggestion import expected_one_of
from onnxport.exporters.tokenizer_evidence import check_tokenizer, record_tokenizer
from onnxport.exporters.toolchain import toolchain
from onnxport.exporters.variants import KINDS
from onnxport.exporters.variants.child import Children
from onnxport.exporters.verification import component_subjects, verified
from onnxport.verify import Report
from onnxport.verify.report import CheckResult
from onnxport.verify.suites import in_suite
from onnxport.verify.tokenizer_record import TokenizerRecord

if TYPE_CHECKING:
    from onnxport.exporters.loading import Loaded

TOKENIZER = "verification/tokenizer.json"
REPORT = "verification/report.json"


@dataclass(frozen=True)
class _Origin:
    """What is kept of the source when its modules are released."""

    source: Source
    preprocessing: Preprocessing
    tokenizer: TokenizerRecord | None
    generation: GenerationEvidence


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
    engines = choose_engines(recipe)
    _check_variants(recipe)
    require_apart(Path(source), Path(out))
    tolerance = {"rtol": recipe.tolerance.rtol, "atol": recipe.tolerance.atol}
    recipe = recipe.model_copy(update={"variants": _variants(recipe), **tolerance})
    with Staging(Path(out), overwrite) as staging, ThreadPoolExecutor(1) as beside, Children() as children:
        place = Workplace(recipe, staging.path, staging.work, beside, children, progress, verify)
        origin, components = _trace_all(place, str(source), hub, engines)
        place = replace(place, several=len(components) > 1)
        for component in components:
            build(place, component)
        while verify and any(component.failed and component.engines[1:] for component in components):
            _try_next_engine(place, str(source), hub, components)
        manifest = _manifest(recipe.model_copy(update={"task": origin.source.task}), origin, components)
        report = _report(place, origin, components, hub, manifest) if verify else None
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
    untouched = f"{out} is as it was" if Path(out).exists() else f"{out} was not written"
    return VerificationFailed(f"{_summary(report)}; {untouched}, {told}", report=report, path=kept)


def _trace_all(
    place: Workplace, source: str, hub: HubOptions, engines: Sequence[Engine]
) -> tuple[_Origin, list[ComponentExport]]:
    """Loads the source, writes the graph of every component and records what PyTorch answers; then lets it go."""
    # torch and transformers load from here on: a request that makes no sense has failed by now.
    from onnxport.exporters.loading import load

    with place.progress.stage("Load") as stage:
        loaded = load(source, place.recipe, hub)
        for note in dict.fromkeys(note for exportable in loaded.components.values() for note in exportable.notes):
            stage.note(note)
    place = replace(place, several=len(loaded.components) > 1)
    components: list[ComponentExport] = []
    for name, exportable in loaded.components.items():
        if exportable.choice is None:
            trace(place, component := ComponentExport(name, list(engines)), exportable)
        else:
            put_together(place, component := ComponentExport(name, []), exportable, components)
        components.append(component)
    files = loaded.copy_files(place.root)
    tokenizer = loaded.processors.tokenizer
    record = record_tokenizer(tokenizer) if place.verify and tokenizer is not None else None
    if record is not None:
        (place.root / TOKENIZER).write_text(record.to_json(), encoding="utf-8")
    preprocessing = loaded.preprocessing.model_copy(update={"files": files})
    return _Origin(loaded.source, preprocessing, record, _generate(place, loaded)), components


def _generate(place: Workplace, loaded: Loaded) -> GenerationEvidence:
    """Records what the model itself generates, while it is in memory."""
    if not place.verify or loaded.record_generation is None:
        return GenerationEvidence()
    with place.progress.stage("Reference: greedy generation in PyTorch") as stage:
        evidence = record_evidence(loaded.record_generation, place.recipe.suite)
        for check in evidence.checks:
            stage.note(check.detail)
        store_evidence(evidence, place.root)
    return evidence


def _try_next_engine(place: Workplace, source: str, hub: HubOptions, components: Sequence[ComponentExport]) -> None:
    """Makes the components that do not agree with PyTorch again, each with the next engine.

    The modules were released: they are loaded again, which is rare enough. Where no other engine can export the
    component, it is made again as it was, and fails.
    """
    from onnxport.exporters.loading import load

    with place.progress.stage("Load again, for another engine"):
        loaded = load(source, place.recipe, hub)
    again: list[ComponentExport] = []
    for component in components:
        if any(part in again for part in component.parts):
            put_together(place, component, loaded.components[component.name], components)
            build(place, component)
        if not component.failed or not component.engines[1:]:
            continue
        again.append(component)
        kept = component.engines[0]
        component.give_up_engine(_why_it_failed(component, place.recipe))
        component.traced = None
        try:
            trace(place, component, loaded.components[component.name])
        except (EngineError, ReadBackError):
            component.engines = [kept]
            trace(place, component, loaded.components[component.name])
        build(place, component)


def _why_it_failed(component: ComponentExport, recipe: Recipe) -> str:
    if component.broken is not None:
        return str(component.broken)
    first = next(check for check in component.checks if check.verdict == "fail")
    summary = _summary(Report.of(component.checks, recipe.tolerance))
    return f"{summary}; the first, {first.id} of case {first.case}: {first.detail}"


def _manifest(recipe: Recipe, origin: _Origin, components: Sequence[ComponentExport]) -> Manifest:
    entries = {component.name: component.entry for component in components if component.entry is not None}
    return Manifest(
        source=origin.source,
        toolchain=toolchain(", ".join(dict.fromkeys(entry.engine for entry in entries.values()))),
        recipe=recipe,
        components=entries,
        preprocessing=origin.preprocessing,
        verification=Verification(
            verdict="skip",
            suite=recipe.suite,
            rtol=recipe.tolerance.rtol,
            atol=recipe.tolerance.atol,
            tokenizer=TOKENIZER if origin.tokenizer is not None else None,
            generation=origin.generation.record,
        ),
        files=(),
    )


def _report(
    place: Workplace, origin: _Origin, components: Sequence[ComponentExport], hub: HubOptions, manifest: Manifest
) -> Report:
    """What was found of every component, and of the tokenizer."""
    checks: list[CheckResult] = []
    if origin.tokenizer is not None and in_suite("tokenizer.match", place.recipe.suite):
        checks += check_tokenizer(place.root, origin.tokenizer, trust_remote_code=hub.trust_remote_code)
    checks += [check for component in components for check in component.checks]
    checks += origin.generation.checks
    if (generation := origin.generation.generation) is not None:
        entries = {component.name: component.entry for component in components if component.entry is not None}
        graphs = [
            subject
            for name, entry in entries.items()
            for subject in component_subjects(place.root, name, entry, place.recipe)
        ]
        with place.progress.stage("Verify greedy generation"):
            checks += check_generation(graphs, list(entries), generation)
    return Report.of(checks, place.recipe.tolerance, subject=verified(manifest, place.recipe.suite))


def _check_variants(recipe: Recipe) -> None:
    unknown = [name for name in recipe.variants if name not in KINDS]
    if unknown:
        raise RecipeError(f"unknown variant {unknown[0]!r}: {expected_one_of(unknown[0], KINDS)}")
    check_required_fusions(recipe)


def _variants(recipe: Recipe) -> tuple[str, ...]:
    """`base` is always kept; the rest in the order of the table, whatever the order asked."""
    return tuple(name for name in KINDS if name == "base" or name in recipe.variants)


def _with_verdict(manifest: Manifest, report: Report) -> Manifest:
    verification = manifest.verification.model_copy(update={"verdict": report.verdict, "report": REPORT})
    return manifest.model_copy(update={"verification": verification})


def _summary(report: Report) -> str:
    failed: Sequence[CheckResult] = [check for check in report.checks if check.verdict == "fail"]
    variants = list(dict.fromkeys(check.variant or "the bundle" for check in failed))
    if not failed:
        return f"verification failed: {report.detail}"
    return f"verification failed: {len(failed)} of {len(report.checks)} checks, in {', '.join(variants)}"
