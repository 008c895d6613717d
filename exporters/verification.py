"""From a manifest to questions, and from a bundle to a report.

What `onnxport verify` asks, and what an export asks before it ends. Neither torch nor transformers is needed unless the
reference given needs them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.errors import BundleError
from onnxport.exporters.generation.check import check_generation
from onnxport.exporters.generation.evidence import GenerationEvidence, generates, stored_evidence
from onnxport.exporters.manifest import MANIFEST_NAME, Component, Manifest, VariantEntry
from onnxport.exporters.progress import Stage
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.recording import Recording
from onnxport.exporters.suggestion import expected_one_of
from onnxport.exporters.tokenizer_settings import read_settings
from onnxport.verify.cases import Case
from onnxport.verify.checks import load_check
from onnxport.verify.contract import GraphContract
from onnxport.verify.errors import ProviderError, SessionError, VerificationError
from onnxport.verify.golden import load_golden
from onnxport.verify.inspection import without_folder
from onnxport.verify.latency import measure_latency
from onnxport.verify.report import CheckResult, Latency, Report, Verified
from onnxport.verify.runners import CPU
from onnxport.verify.subject import Subject
from onnxport.verify.suites import in_suite, require_suite
from onnxport.verify.tokenizer_record import load_tokenizer_record
from onnxport.verify.tolerance import Criterion, Tolerance
from onnxport.verify.verification import verify_files, verify_subject


def verify_bundle(
    bundle: Bundle,
    *,
    recordings: Mapping[str, Recording] | None = None,
    variants: Collection[str] | None = None,
    beside: Sequence[CheckResult] = (),
    generation: GenerationEvidence | None = None,
    case: str | None = None,
    suite: str | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    provider: str | None = None,
) -> Report:
    """Checks every file of a bundle against its hash, and every variant against a reference.

    A damaged file fails its check, and the checks that can still be put are put.

    Args:
        bundle: what `load_bundle` returned.
        recordings: component to what a reference answers (the measure) and to which cases; components that are not in
            it are not asked. None: the golden tensors of the bundle.
        variants: names of the variants to check; None: all.
        beside: what was found out elsewhere, while the source was at hand; it becomes part of the report.
        generation: what a reference generated; None: what is stored in the bundle.
        case: run only the golden case of that name.
        suite: which checks are put; None: those of the suite of the export. The golden tensors are what they are.
        rtol, atol: instead of the recipe's, for graphs in the dtype of the export; outputs with a tolerance of
            their own in the recipe keep it.
        provider: execution provider; None: the CPU's.

    Raises:
        BundleError: there is no such variant.
        ProviderError: this ONNX Runtime has no such provider.
        VerificationError: there is nothing to compare with: no golden tensors and no reference, no cases, cases that
            do not fit, or no case of that name; there is no such suite.
    """
    suite = require_suite(suite or bundle.manifest.recipe.suite)
    provider = provider or CPU
    require_provider(provider)
    asked = subjects(bundle.path, bundle.manifest, variants, rtol=rtol, atol=atol, provider=provider)
    if recordings is None:
        _require_golden(bundle, case)
    checks = [*verify_files(bundle.path, bundle.manifest.files), _check_manifest(bundle), *beside]
    if in_suite("tokenizer.match", suite) and not any(check.id == "tokenizer.match" for check in beside):
        checks += _check_tokenizer(bundle)
    if recordings is None:
        checks += _against_golden(bundle, asked, suite, case)
    else:
        checks += [check for recording in recordings.values() for check in recording.checks]
        for subject in asked:
            if (recording := recordings.get(subject.component)) is not None:
                checks += check_subject(subject, recording, suite)
    if generates(suite) and case is None:
        checks += _check_generation(bundle, asked, generation)
    of = verified(bundle.manifest, suite, name=bundle.path.resolve().name)
    return Report.of(checks, _tolerance(bundle.manifest.recipe, rtol, atol), provider=provider, subject=of)


def verified(manifest: Manifest, suite: str, *, name: str | None = None) -> Verified:
    """Returns what a report of a bundle is of; `name`: of its folder, None for the report in it."""
    source, made = manifest.source, manifest.toolchain
    versions = {"onnxport": made.onnxport, "torch": made.torch, "transformers": made.transformers}
    return Verified(
        name=name,
        model=source.model,
        architecture=source.architecture,
        task=source.task,
        engine=made.engine,
        suite=suite,
        versions={package: version for package, version in versions.items() if version},
    )


def measure_bundle_latency(
    bundle: Bundle,
    stage: Stage,
    *,
    recordings: Mapping[str, Recording] | None = None,
    variants: Collection[str] | None = None,
    case: str | None = None,
    provider: str | None = None,
) -> tuple[list[Latency], list[str]]:
    """Times every variant on some of the cases that it is verified with (`measure_latency`).

    Args:
        stage: is told how far it is.
        bundle, recordings, variants, case, provider: as in `verify_bundle`.

    Returns:
        What was measured, and a sentence for each variant that could not be timed, as a note of the report; that it
        does not load, or that its golden tensors cannot be read, is a failed check of `verify_bundle`.

    Raises:
        BundleError: there is no such variant.
    """
    asked = subjects(bundle.path, bundle.manifest, variants, provider=provider or CPU)
    measured: list[Latency] = []
    notes: list[str] = []
    for done, subject in enumerate(asked):
        stage.advance(done, len(asked))
        try:
            cases = _cases(bundle, subject.component, recordings, case)
            if not cases:
                notes.append(f"{subject.component} {subject.variant} was not timed: there are no cases to run it on")
                continue
            measured += measure_latency(subject, cases)
        except (SessionError, VerificationError) as e:
            notes.append(f"{subject.component} {subject.variant} was not timed: {e}")
    return measured, notes


def _cases(
    bundle: Bundle, component: str, recordings: Mapping[str, Recording] | None, case: str | None
) -> Sequence[Case]:
    """Returns what a component is verified with; nothing for one that the reference does not answer for."""
    if recordings is not None:
        return recordings[component].cases if component in recordings else ()
    golden = bundle.manifest.components[component].golden
    cases = load_golden(bundle.path / golden)[0] if golden is not None else ()
    return [one for one in cases if case in (None, one.name)]


def check_subject(subject: Subject, recording: Recording, suite: str) -> list[CheckResult]:
    """Puts the checks of a suite to one graph file; relations are those that the recorded reference keeps, if told."""
    if recording.invariants is not None:
        subject = replace(subject, invariants=recording.invariants)
    return verify_subject(subject, recording.runner, recording.cases, suite=suite)


def subjects(
    root: Path,
    manifest: Manifest,
    variants: Collection[str] | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    provider: str = CPU,
) -> list[Subject]:
    """Returns what is to be verified: every asked variant of every component, with the criterion of its precision.

    Args:
        root: the folder that the manifest's paths are relative to.
        manifest: need not be sealed.
        variants, rtol, atol, provider: as in `verify_bundle`.

    Raises:
        BundleError: no component has a variant of that name; a variant has a precision without a criterion.
    """
    known = list(dict.fromkeys(name for component in manifest.components.values() for name in component.variants))
    for name in variants if variants is not None else ():
        if name not in known:
            raise BundleError(f"the bundle has no variant {name!r}; {expected_one_of(name, known)}")
    if variants is not None and not variants:
        raise BundleError(f"no variant was asked for; name some of {', '.join(known)}, or None for all")
    return [
        subject
        for component_name, component in manifest.components.items()
        for subject in component_subjects(
            root, component_name, component, manifest.recipe, rtol=rtol, atol=atol, provider=provider
        )
        if variants is None or subject.variant in variants
    ]


def component_subjects(
    root: Path,
    name: str,
    component: Component,
    recipe: Recipe,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    provider: str = CPU,
) -> list[Subject]:
    """Returns every variant of one component, with the criterion of its precision; arguments as in `subjects`.

    Raises:
        BundleError: a variant has a precision without a criterion.
    """
    return [
        Subject(
            component=name,
            variant=variant,
            path=root / entry.file,
            contract=GraphContract(
                inputs=component.inputs,
                outputs=component.outputs,
                axes=component.axes,
                opsets=entry.opsets,
                ir_version=entry.ir_version,
                vocabularies=component.vocabularies,
            ),
            criterion=_criterion(recipe, component, variant, entry, rtol, atol),
            provider=provider,
            session_options=entry.session_options,
            required_fusions=recipe.require_fusion if variant == "optimized" else {},
            fusions=entry.fusions,
            invariants=component.invariants,
            plants_faults=variant == "base",
        )
        for variant, entry in component.variants.items()
    ]


def _criterion(
    recipe: Recipe,
    component: Component,
    variant: str,
    entry: VariantEntry,
    rtol: float | None,
    atol: float | None,
) -> Criterion:
    if entry.precision == recipe.dtype:
        return _tolerance(recipe, rtol, atol)
    if entry.precision == "float16":
        return Tolerance(rtol=recipe.fp16.rtol, atol=recipe.fp16.atol)
    if entry.precision == "int8":
        decisions = {**component.decisions, **recipe.int8.decisions}
        return recipe.int8.model_copy(update={"decisions": decisions})
    raise BundleError(
        f"variant {variant} has the precision {entry.precision!r}, for which there is no criterion; "
        f"{expected_one_of(entry.precision, ('float32', 'float16', 'int8'))}"
    )


def _tolerance(recipe: Recipe, rtol: float | None, atol: float | None) -> Tolerance:
    own = recipe.tolerance
    return Tolerance(
        rtol=own.rtol if rtol is None else rtol,
        atol=own.atol if atol is None else atol,
        per_output=own.per_output,
    )


def require_provider(provider: str) -> None:
    """Raises ProviderError when this ONNX Runtime has no such execution provider."""
    import onnxruntime

    available = onnxruntime.get_available_providers()
    if provider not in available:
        raise ProviderError(f"{provider} is not available here; {expected_one_of(provider, available)}")


def only(cases: Sequence[Case], name: str | None, where: str) -> list[Case]:
    """Returns the case of that name, or all of them for None.

    Raises:
        VerificationError: there is none; `where` says what was looked through ("the suite has").
    """
    chosen = [case for case in cases if name in (None, case.name)]
    if not chosen:
        raise VerificationError(
            f"{where} no case {name!r}; {expected_one_of(str(name), [case.name for case in cases])}"
        )
    return chosen


def _require_golden(bundle: Bundle, case: str | None) -> None:
    """There is something to compare every component with, and the case asked for is in it."""
    components = bundle.manifest.components
    lacking = [name for name, component in components.items() if component.golden is None]
    if lacking:
        raise VerificationError(
            f"{bundle.path} was exported without verification and holds no golden tensors; verify it against the "
            "source (--against)."
        )
    if case is not None:
        paths = [bundle.path / component.golden for component in components.values() if component.golden is not None]
        only([one for path in paths for one in load_golden(path)[0]], case, "the golden tensors have")


def _check_manifest(bundle: Bundle) -> CheckResult:
    """The manifest cannot record its own hash among the files, so it carries a digest of the rest of it."""
    if bundle.digest_ok():
        return CheckResult(id="files.sha256", verdict="pass", detail=f"{MANIFEST_NAME}: content as sealed")
    detail = f"{MANIFEST_NAME}: its content does not have the digest that it was sealed with; it was edited or damaged"
    return CheckResult(id="files.sha256", verdict="fail", detail=detail)


def _check_tokenizer(bundle: Bundle) -> list[CheckResult]:
    """The `tokenizers` library alone, with the bundle's files, against what was recorded of the source's tokenizer."""
    record = bundle.manifest.verification.tokenizer
    if record is None:
        detail = "no tokenizer was recorded when the bundle was made"
        return [CheckResult(id="tokenizer.match", verdict="skip", detail=detail)]
    try:
        expected = load_tokenizer_record(bundle.path / record)
        settings = read_settings(bundle.path, expected.settings)
    except (VerificationError, BundleError) as e:
        detail = without_folder(str(e), bundle.path / record, bundle.path)
        return [CheckResult(id="tokenizer.match", verdict="fail", detail=detail)]
    return load_check("tokenizer.match")(bundle.path / "tokenizer.json", settings, expected)


def _check_generation(
    bundle: Bundle, asked: Sequence[Subject], given: GenerationEvidence | None
) -> Sequence[CheckResult]:
    evidence = given or stored_evidence(bundle.path, bundle.manifest.verification)
    if evidence.generation is None:
        return evidence.checks
    return check_generation(asked, list(bundle.manifest.components), evidence.generation, golden=given is None)


def _against_golden(bundle: Bundle, asked: Sequence[Subject], suite: str, case: str | None) -> Iterator[CheckResult]:
    for name, component in bundle.manifest.components.items():
        assert component.golden is not None
        own = [subject for subject in asked if subject.component == name]
        yield from _component_against_golden(bundle, component.golden, own, suite, case)


def _component_against_golden(
    bundle: Bundle, golden: str, asked: Sequence[Subject], suite: str, case: str | None
) -> Iterator[CheckResult]:
    """What is wrong with stored tensors is a fault of the bundle, hence a failed check and no error."""

    def fault(subject: Subject, error: VerificationError) -> CheckResult:
        detail = without_folder(str(error), bundle.path / golden, bundle.path)
        return CheckResult(
            id="golden.match", component=subject.component, variant=subject.variant, verdict="fail", detail=detail
        )

    try:
        cases, recorded = load_golden(bundle.path / golden)
    except VerificationError as e:
        yield from (fault(subject, e) for subject in asked)
        return
    chosen = cases if case is None else [one for one in cases if one.name == case]
    for subject in asked if chosen or case is None else ():
        try:
            yield from verify_subject(subject, recorded, chosen, golden=True, suite=suite)
        except VerificationError as e:
            yield fault(subject, e)
