"""Any ONNX file against the model it is said to come from: one of Optimum, of transformers or made by hand.

A bundle says what it promises; a lone file does not. What it must compute is asked of the source, and what belongs
together is told by name: the file's inputs and outputs may be fewer than the source's, in another order and of other
integer types, and its axes may be called anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from onnxport.exporters.environment import installed_version
from onnxport.exporters.errors import SignatureError
from onnxport.exporters.exportable import EXTRA_OUTPUTS, Arrays, Exportable, to_tensors
from onnxport.exporters.fewer_inputs import without_inputs
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.loading import Loaded, load
from onnxport.exporters.manifest import Source
from onnxport.exporters.merged_placeholders import placeholders
from onnxport.exporters.named_graph import component_of_file, named_graph
from onnxport.exporters.onnx_facts import FileFacts, read_facts
from onnxport.exporters.own_failure import own_failure
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.recording import Recording
from onnxport.exporters.reference import record, with_float64, with_invariants
from onnxport.exporters.signature import probe_contract
from onnxport.exporters.verification import only, require_provider
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, Dim, GraphContract, TensorSpec
from onnxport.verify.errors import VerificationError
from onnxport.verify.report import CheckResult, Report, Verified
from onnxport.verify.runners import CPU, Recorded, Runner
from onnxport.verify.subject import Subject
from onnxport.verify.suites import in_suite, measures_noise
from onnxport.verify.tolerance import Criterion, Tolerance
from onnxport.verify.verification import verify_subject

# The file made no promise of its own that these could hold it to: they are answered here, by what the source has.
_ANSWERED_HERE = ("graph.names", "graph.axes")
_NOT_COMPARED = "outputs.match"
_SENTENCE_EMBEDDING = "sentence_embedding"
# sentence-transformers' name of what transformers calls last_hidden_state, in the files that Optimum makes.
_SENTENCE_NAMES = {"token_embeddings": "last_hidden_state"}
_QUANTISED_OPS = frozenset(
    {"DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"}
)
# Of all numbers in the weights: a file with fewer 8-bit ones is judged by its floating-point weights.
_QUANTISED_SHARE = 0.1

MakeResult = Callable[..., CheckResult]


@dataclass(frozen=True)
class FileQuestion:
    """A file, what is expected of it, and what the source answered.

    Attributes:
        names: the result of matching inputs and outputs; what the file lacks is among them, as a skip.
        cases: the cases of the recording, in the names and types of the file's inputs.
    """

    subject: Subject
    cases: tuple[Case, ...]
    recording: Recording
    names: tuple[CheckResult, ...]
    suite: str
    source: Source

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not asked of the file and a person should know, one line each."""
        absent = [check.output for check in self.names if check.id == _NOT_COMPARED and check.output]
        told = [check.detail for check in self.names if check.verdict == "skip" and check.id != _NOT_COMPARED]
        return (*told, *([f"the file has no output {', '.join(absent)}: not compared"] if absent else []))


def ask_source(
    path: Path,
    source: str,
    recipe: Recipe,
    hub: HubOptions,
    *,
    component: str | None = None,
    case: str | None = None,
    provider: str | None = None,
) -> FileQuestion:
    """Loads the source and records its answers to what can be asked of the file.

    An input that the file lacks is not given to the source either: PyTorch's default takes its place.

    Args:
        path: an ONNX file.
        source: as for an export.
        recipe: task (None: inferred), suite and tolerance. rtol or atol given: they hold whatever the file's
            precision; else float16 and quantised files are held to what a bundle's `fp16` and `int8` are.
        component: which graph of the model the file holds; None: the one that it is named after, or the only one.
        case: only the case of that name.

    Raises:
        ModelFileError: the file is no ONNX model.
        VerificationError: the file has an input that the source lacks, or of a type that cannot hold its values; no
            output is common to both; the suite has no such case.
        ProviderError: this ONNX Runtime has no such provider.
        SourceError: the model has no such component, or several and the file is named after none.
        SourceError, TaskError, SignatureError: as for an export.
    """
    provider = provider or CPU
    require_provider(provider)
    facts = read_facts(path)
    extras = [name for name in EXTRA_OUTPUTS if any(spec.name.split(".")[0] == name for spec in facts.outputs)]
    recipe = recipe.model_copy(update={"outputs": tuple(extras)})
    loaded = load(source, recipe, hub, wanted=component or named_graph(path))
    name = component_of_file(path, loaded, component)
    whole = loaded.component(name)
    asked = source if len(loaded.components) == 1 else f"{name} of {source}"
    _require_known_inputs(facts, whole, asked)
    _require_cache(facts, whole)
    lacking = [name for name in whole.inputs if name not in {spec.name for spec in facts.inputs}]
    exportable = _rounded(without_inputs(whole, lacking), facts)
    try:
        exportable = _with_outputs_of(exportable, facts)
        contract = _promised(loaded, exportable, recipe.opset)
    except SignatureError as e:
        if not lacking:
            raise
        raise SignatureError(
            f"{path.name} has no input {', '.join(lacking)}, without which {asked} does not run; give the --task and "
            f"the --component that the file was made from ({e})"
        ) from e
    outputs = _matched_outputs(facts, contract, asked)
    cases = only(exportable.cases(recipe.suite), case, f"suite {recipe.suite} has")
    recording = record(exportable, cases, _silent, exportable.left_out(recipe.suite) if case is None else {})
    if in_suite("rows.independent", recipe.suite):
        recording = with_invariants(recording, exportable, contract, recipe)
    if measures_noise(recipe.suite):
        recording = with_float64(recording, exportable)
    subject = Subject(
        component=name,
        variant=path.name,
        path=path,
        contract=_contract(facts, contract, outputs),
        criterion=_criterion(facts, recipe, {ours: exportable.decisions.get(it) for ours, it in outputs.items()}),
        provider=provider,
        invariants=recording.invariants,
    )
    recording = recording.of_component(name)
    result = partial(CheckResult, component=name, variant=path.name)
    return FileQuestion(
        subject=subject,
        cases=tuple(_in_types_of(facts, one) for one in recording.cases),
        recording=replace(recording, runner=_renamed(recording.runner, outputs)),
        names=(*_check_names(result, facts, contract, outputs, lacking), _check_axes(result, facts, contract, outputs)),
        suite=recipe.suite,
        source=loaded.source,
    )


def verify_file(question: FileQuestion) -> Report:
    """Puts the checks of the suite to the file."""
    subject, recording = question.subject, question.recording
    found = verify_subject(subject, recording.runner, question.cases, suite=question.suite)
    own = [check for check in found if check.id not in _ANSWERED_HERE]
    checks = [*question.names, *recording.checks, *own]
    source, used = question.source, ("onnxport", "torch", "transformers")
    verified = Verified(
        name=subject.path.name,
        model=source.model,
        architecture=source.architecture,
        task=source.task,
        suite=question.suite,
        versions={package: version for package in used if (version := installed_version(package)) is not None},
    )
    return Report.of(checks, subject.criterion, provider=subject.provider, subject=verified)


def _silent(done: int, total: int) -> None:
    """Nobody waits for single cases."""


def _require_known_inputs(facts: FileFacts, exportable: Exportable, source: str) -> None:
    unknown = [spec.name for spec in facts.inputs if spec.name not in exportable.inputs]
    if unknown:
        raise VerificationError(
            f"{facts.path.name} has the input {unknown[0]}, which {source} is not fed with; expected some of "
            f"{', '.join(exportable.inputs)}. Give the source, the --task and the --component that the file was made "
            "from, or export it without that input."
        )
    if not facts.inputs:
        raise VerificationError(f"{facts.path.name} has no inputs; there is nothing to run it on.")


def _require_cache(facts: FileFacts, exportable: Exportable) -> None:
    choice = exportable.choice
    if choice is not None and choice.condition not in {spec.name for spec in facts.inputs}:
        raise VerificationError(
            f"{facts.path.name} has no input {choice.condition}, by which a merged decoder chooses between its halves; "
            f"if it is one of them, give --component {choice.if_false} or {choice.if_true}"
        )
    if choice is not None and (constant := placeholders(facts.path, choice)):
        raise VerificationError(
            f"{facts.path.name} gives {constant[0]} as a constant in steps with a cache, as Optimum writes it; "
            f"expected the cache that it was given. Verify {choice.if_false} and {choice.if_true}, which it was made "
            "of, or make one that hands the cache on: onnxport export --merged."
        )


def _promised(loaded: Loaded, exportable: Exportable, opset: int) -> GraphContract:
    """The contract of the source: what an export of it would promise."""
    choice = exportable.choice
    if choice is None:
        return probe_contract(exportable, opset, fixable=False)
    if_true, if_false = (probe_contract(loaded.component(part), opset, fixable=False) for part in choice.parts)
    return choice.contract(exportable, if_true, if_false)


def _with_outputs_of(exportable: Exportable, facts: FileFacts) -> Exportable:
    """What an export would leave out is compared where the file has it and the module returns it."""
    kept = exportable.outputs or ()
    more = [spec.name for spec in facts.outputs if spec.name not in kept]
    if exportable.outputs is None or exportable.choice is not None or not more:
        return exportable
    sample = to_tensors(exportable.sample(exportable.example, np.random.default_rng(0)))
    with own_failure(f"{exportable.source.architecture} itself fails on its own inputs"):
        returned = replace(exportable, extra_outputs=()).call(sample)
    if not isinstance(returned, Mapping):
        return exportable
    known = [name for name in more if isinstance(returned.get(name), Tensor)]
    return replace(exportable, outputs=(*kept, *known))


def _rounded(exportable: Exportable, facts: FileFacts) -> Exportable:
    """What a file takes as float16 has values that float16 can hold, in the source's own type."""
    half = {spec.name for spec in facts.inputs if spec.dtype == "float16"}

    def held(inputs: Mapping[str, np.ndarray]) -> Arrays:
        return {name: it.astype(np.float16).astype(it.dtype) if name in half else it for name, it in inputs.items()}

    if not half:
        return exportable
    return replace(
        exportable,
        sample=lambda sizes, rng: held(exportable.sample(sizes, rng)),
        cases=lambda suite: [replace(case, inputs=held(case.inputs)) for case in exportable.cases(suite)],
    )


def _matched_outputs(facts: FileFacts, contract: GraphContract, source: str) -> dict[str, str]:
    """Returns the file's name of every output that both have, and the source's."""
    known = [spec.name for spec in contract.outputs]
    found = [spec.name for spec in facts.outputs]
    same = {name: name for name in known}
    if _SENTENCE_EMBEDDING in known and _SENTENCE_EMBEDDING in found:
        same |= {alias: it for alias, it in _SENTENCE_NAMES.items() if alias not in known and it not in found}
    names = {name: same[name] for name in found if same.get(name) in known}
    if not names:
        raise VerificationError(
            f"{facts.path.name} has the outputs {', '.join(found) or 'none'}, and {source} gives {', '.join(known)}: "
            "none is common to both. Give the source, the --task or the --component that the file was made from."
        )
    return names


def _renamed(answers: Runner, outputs: Mapping[str, str]) -> Recorded:
    """Returns what the file can be asked of the answers, under its own names."""
    assert isinstance(answers, Recorded)

    def chosen(cases: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
        return {case: {ours: found[theirs] for ours, theirs in outputs.items()} for case, found in cases.items()}

    return replace(answers, outputs=chosen(answers.outputs), precise=chosen(answers.precise))


def _contract(facts: FileFacts, contract: GraphContract, outputs: Mapping[str, str]) -> GraphContract:
    """The source's axes under the file's names and in its types. Its opsets are its own affair, and so is what it takes
    besides: a size that it leaves open and the source does not is not promised to be refused."""
    theirs = {spec.name: spec for spec in (*contract.inputs, *contract.outputs)}
    inputs, opened = [], set()
    for spec in facts.inputs:
        dims = list(theirs[spec.name].shape)
        if len(dims) == len(spec.shape):
            for i in (i for i, dim in enumerate(spec.shape) if isinstance(dim, str)):
                opened.add(dims[i])
                dims[i] = f"?{spec.name}.{i}" if isinstance(dims[i], int) else dims[i]
        inputs.append(TensorSpec(name=spec.name, dtype=spec.dtype, shape=tuple(dims)))
    half = _precision(facts) == "float16"
    kept = []
    for spec in facts.outputs:
        if spec.name in outputs:
            expected = theirs[outputs[spec.name]]
            dtype = spec.dtype if half and spec.dtype == "float16" and expected.dtype == "float32" else expected.dtype
            kept.append(TensorSpec(name=spec.name, dtype=dtype, shape=expected.shape))
    return GraphContract(
        inputs=tuple(inputs),
        outputs=tuple(kept),
        axes={
            name: AxisRange(min=axis.min) if axis.fixed is not None and name in opened else axis
            for name, axis in contract.axes.items()
        },
        vocabularies=contract.vocabularies,
    )


def _in_types_of(facts: FileFacts, case: Case) -> Case:
    """Returns the case in the types that the file asks for (int32 ids, a float mask), the values being the same."""
    inputs = {}
    for spec in facts.inputs:
        array = case.inputs[spec.name]
        try:
            cast = array.astype(spec.dtype)
        except (TypeError, ValueError):
            cast = None
        if cast is None or not np.array_equal(cast, array):
            raise VerificationError(
                f"{facts.path.name} takes {spec.name} as {spec.dtype}, which cannot hold the {array.dtype} values of "
                f"case {case.name}. Export it with an input of type {array.dtype}."
            )
        inputs[spec.name] = cast
    return Case(case.name, inputs, case.mask)


def _precision(facts: FileFacts) -> str:
    sizes = facts.weights.bytes_by_dtype
    whole = sizes.get("int8", 0) + sizes.get("uint8", 0)
    numbers = whole + sizes.get("float32", 0) / 4 + sizes.get("float16", 0) / 2
    computes = any(op.rpartition(":")[2] in _QUANTISED_OPS for op in facts.ops)
    if computes and whole >= _QUANTISED_SHARE * numbers:
        return "int8"
    return "float16" if sizes.get("float16", 0) > sizes.get("float32", 0) else "float32"


def _criterion(facts: FileFacts, recipe: Recipe, decisions: Mapping[str, int | None]) -> Criterion:
    precision = _precision(facts)
    if precision == "float32" or recipe.rtol is not None or recipe.atol is not None:
        return recipe.tolerance
    if precision == "float16":
        return Tolerance(rtol=recipe.fp16.rtol, atol=recipe.fp16.atol)
    decided = {name: axis for name, axis in decisions.items() if axis is not None}
    return recipe.int8.model_copy(update={"decisions": decided})


def _check_names(
    result: MakeResult, facts: FileFacts, contract: GraphContract, outputs: Mapping[str, str], lacking: list[str]
) -> Iterator[CheckResult]:
    """What both have is compared; what one of them lacks is told."""
    unknown = [spec.name for spec in facts.outputs if spec.name not in outputs]
    shared = ", ".join(ours if ours == theirs else f"{ours} ({theirs})" for ours, theirs in outputs.items())
    detail = f"fed by name: {', '.join(spec.name for spec in facts.inputs)}; compared: {shared}"
    if unknown:
        detail = f"the source has no output {', '.join(unknown)}; it has {', '.join(s.name for s in contract.outputs)}"
    yield result(id="graph.names", verdict="fail" if unknown else "pass", detail=detail)
    if lacking:
        them = "it" if len(lacking) == 1 else "them"
        told = f"the file has no input {', '.join(lacking)}: the source was run without {them}, too"
        yield result(id="graph.names", verdict="skip", detail=told)
    for spec in contract.outputs:
        if spec.name not in outputs.values():
            told = f"the file has no output {spec.name}: not compared"
            yield result(id=_NOT_COMPARED, verdict="skip", detail=told, output=spec.name)


def _check_axes(
    result: MakeResult, facts: FileFacts, contract: GraphContract, outputs: Mapping[str, str]
) -> CheckResult:
    """No dimension is fixed that varies in the source. Axis names, and sizes that the file leaves open, are free."""
    expected = {spec.name: spec.shape for spec in contract.written().inputs}
    shapes = {spec.name: spec.shape for spec in contract.written().outputs}
    expected |= {ours: shapes[theirs] for ours, theirs in outputs.items()}
    stated = [spec for spec in (*facts.inputs, *facts.outputs) if spec.name in expected]
    problems = [
        f"{spec.name} is {list(spec.shape)}, and in the source {list(expected[spec.name])}"
        for spec in stated
        if not _allows(spec.shape, expected[spec.name], spec.name)
    ]
    dimensions = sum(len(spec.shape) for spec in stated)
    detail = "; ".join(problems) or f"{dimensions} dimensions, none fixed that varies in the source"
    return result(id="graph.axes", verdict="fail" if problems else "pass", detail=detail)


def _allows(stated: tuple[Dim, ...], expected: tuple[Dim, ...], name: str) -> bool:
    if stated == (f"?{name}",):  # the file states no shape at all
        return True
    return len(stated) == len(expected) and all(
        isinstance(ours, str) or ours == theirs for ours, theirs in zip(stated, expected, strict=True)
    )
