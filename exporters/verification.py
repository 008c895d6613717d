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
from onnxport.exporters.manifest import MANIFEST_NAME, Manifest, VariantEntry
from onnxport.exporters.suggestion import expected_one_of
from onnxport.exporters.tokenizer_settings import read_settings
from onnxport.verify.cases import Case
from onnxport.verify.checks import load_check
from onnxport.verify.contract import GraphContract
from onnxport.verify.errors import ProviderError, VerificationError
from onnxport.verify.golden import load_golden
from onnxport.verify.inspection import without_folder
from onnxport.verify.relations import Invariant
from onnxport.verify.report import CheckResult, Report
from onnxport.verify.runners import CPU, Runner
from onnxport.verify.subject import Subject
from onnxport.verify.suites import in_suite, require_suite
from onnxport.verify.tokenizer_record import load_tokenizer_record
from onnxport.verify.tolerance import Criterion, Tolerance
from onnxport.verify.verification import verify_files, verify_subject


def verify_bundle(
    bundle: Bundle,
    *,
    reference: Runner | None = None,
    cases: Sequence[Case] | None = None,
    variants: Collection[str] | None = None,
    invariants: Mapping[str, Invariant] | None = None,
    beside: Sequence[CheckResult] = (),
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
        reference: the measure, with the `cases` to run; None: the golden tensors of the bundle.
        variants: names of the variants to check; None: all.
        invariants: the relations that the reference keeps; None: those that the manifest records.
        beside: what was found out elsewhere, while the source was at hand; it becomes part of the report.
        case: run only the golden case of that name.
        suite: which checks are put; None: those of the suite of the export. The golden tensors are what they are.
        rtol, atol: instead of the recipe's, for graphs in the dtype of the export; outputs with a tolerance of
            their own in the recipe keep it.
        provider: execution provider; None: the CPU's.

    Raises:
        BundleError: there is no such variant.
        ProviderError: this ONNX Runtime has no such provider.
        VerificationError: there is nothing to compare with: no golden tensors and no reference, a reference without
            cases, cases that do not fit, or no case of that name; there is no such suite.
    """
    suite = require_suite(suite or bundle.manifest.recipe.suite)
    provider = provider or CPU
    require_provider(provider)
    asked = subjects(bundle.path, bundle.manifest, variants, rtol=rtol, atol=atol, provider=provider)
    _require_reference(bundle, reference, cases)
    if case is not None and reference is None and bundle.manifest.verification.golden is not None:
        only(load_golden(bundle.path / bundle.manifest.verification.golden)[0], case, "the golden tensors")
    if invariants is not None:
        asked = [replace(subject, invariants=invariants) for subject in asked]
    checks = [*verify_files(bundle.path, bundle.manifest.files), _check_manifest(bundle), *beside]
    if in_suite("tokenizer.match", suite) and not any(check.id == "tokenizer.match" for check in beside):
        checks += _check_tokenizer(bundle)
    if reference is None:
        checks += _against_golden(bundle, asked, suite, case)
    else:
        for subject in asked:
            checks += verify_subject(subject, reference, cases or (), suite=suite)
    return Report.of(checks, _tolerance(bundle.manifest, rtol, atol), provider=provider)


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
        Subject(
            component=component_name,
            variant=name,
            path=root / entry.file,
            contract=GraphContract(
                inputs=component.inputs,
                outputs=component.outputs,
                axes=component.axes,
                opsets=entry.opsets,
                ir_version=entry.ir_version,
                vocabularies=component.vocabularies,
            ),
            criterion=_criterion(manifest, name, entry, rtol, atol),
            provider=provider,
            session_options=entry.session_options,
            required_fusions=manifest.recipe.require_fusion if name == "optimized" else {},
            fusions=entry.fusions,
            invariants=manifest.verification.invariants,
        )
        for component_name, component in manifest.components.items()
        for name, entry in component.variants.items()
        if variants is None or name in variants
    ]


def _criterion(
    manifest: Manifest, variant: str, entry: VariantEntry, rtol: float | None, atol: float | None
) -> Criterion:
    recipe = manifest.recipe
    if entry.precision == recipe.dtype:
        return _tolerance(manifest, rtol, atol)
    if entry.precision == "float16":
        return Tolerance(rtol=recipe.fp16.rtol, atol=recipe.fp16.atol)
    if entry.precision == "int8":
        decisions = {**manifest.verification.decisions, **recipe.int8.decisions}
        return recipe.int8.model_copy(update={"decisions": decisions})
    raise BundleError(
        f"variant {variant} has the precision {entry.precision!r}, for which there is no criterion; "
        f"{expected_one_of(entry.precision, ('float32', 'float16', 'int8'))}"
    )


def _tolerance(manifest: Manifest, rtol: float | None, atol: float | None) -> Tolerance:
    own = manifest.recipe.tolerance
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
        VerificationError: there is none; `where` says what was looked through.
    """
    chosen = [case for case in cases if name in (None, case.name)]
    if not chosen:
        raise VerificationError(
            f"{where} has no case {name!r}; {expected_one_of(str(name), [case.name for case in cases])}"
        )
    return chosen


def _require_reference(bundle: Bundle, reference: Runner | None, cases: Sequence[Case] | None) -> None:
    if (reference is None) != (cases is None):
        raise VerificationError("a reference and its cases go together: give both, or neither for the golden tensors")
    if reference is None and bundle.manifest.verification.golden is None:
        raise VerificationError(
            f"{bundle.path} was exported without verification and holds no golden tensors; verify it against the "
            "source (--against)."
        )


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


def _against_golden(bundle: Bundle, asked: Sequence[Subject], suite: str, case: str | None) -> Iterator[CheckResult]:
    """What is wrong with stored tensors is a fault of the bundle, hence a failed check and no error."""
    golden = bundle.manifest.verification.golden
    assert golden is not None

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
    for subject in asked:
        try:
            yield from verify_subject(subject, recorded, chosen, golden=True, suite=suite)
        except VerificationError as e:
            yield fault(subject, e)
