"""The PyTorch model as a runner: what every variant is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.errors import BundleError, SignatureError
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.exporters.float64 import run_in_float64
from onnxport.exporters.generation.evidence import GenerationEvidence, record_evidence
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.loading import load
from onnxport.exporters.manifest import Component
from onnxport.exporters.own_failure import own_failure
from onnxport.exporters.recipe import Recipe, Suite
from onnxport.exporters.recording import Recording
from onnxport.exporters.tokenizer_evidence import check_tokenizer, record_tokenizer
from onnxport.exporters.verification import only
from onnxport.verify.cases import Case
from onnxport.verify.contract import GraphContract
from onnxport.verify.relations import measure_relations
from onnxport.verify.report import CheckResult
from onnxport.verify.runners import Recorded, Runner
from onnxport.verify.suites import in_suite, measures_noise, probe_case


@dataclass(frozen=True)
class TorchRunner:
    """Runs the unpatched module in inference mode. One case at a time, on the CPU."""

    exportable: Exportable
    name: str = "pytorch"

    def require_eval(self) -> None:
        """Raises SignatureError when part of the module is in train mode: dropout would poison the reference."""
        training = [name or "the module" for name, module in self.exportable.module.named_modules() if module.training]
        if training:
            raise SignatureError(f"{training[0]} is in train mode; a reference needs eval(): call module.eval()")

    def run(self, case: Case) -> dict[str, np.ndarray]:
        """Returns every output by name.

        Raises:
            SignatureError: part of the module is in train mode, or PyTorch itself fails on these inputs.
        """
        self.require_eval()
        tensors = to_tensors(case.inputs)
        with own_failure(f"PyTorch itself fails on case {case.name}"):
            returned = self.exportable.call(tensors)
        return {name: tensor.detach().numpy() for name, tensor in self.exportable.named(returned).items()}


def record(
    exportable: Exportable,
    cases: Sequence[Case],
    advance: Callable[[int, int], None],
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> Recording:
    """Runs every case once, so that the module can be released before any graph is loaded.

    Args:
        exportable, cases: what is asked what.
        advance: is told how many cases are done, and of how many.
        left_out: cases that could not be made, with the reason: they are among those that were refused.

    Raises:
        SignatureError: PyTorch fails on every case, or part of the module is in train mode.
    """
    runner = TorchRunner(exportable)
    outputs: dict[str, Mapping[str, np.ndarray]] = {}
    refused: dict[str, str] = {}
    for done, case in enumerate(cases, 1):
        runner.require_eval()  # forward itself may have switched it
        try:
            outputs[case.name] = runner.run(case)
        except SignatureError as e:
            refused[case.name] = str(e)
        advance(done, len(cases))
    if not outputs:
        raise SignatureError(next(iter(refused.values()), "the suite has no cases: nothing to compare"))
    kept = tuple(case for case in cases if case.name in outputs)
    refused |= left_out
    # A case that could not be put must not vanish from the evidence.
    skipped = [CheckResult(id="outputs.match", case=name, verdict="skip", detail=why) for name, why in refused.items()]
    return Recording(
        Recorded(runner.name, outputs),
        kept,
        refused,
        checks=tuple(skipped),
    )


def with_invariants(recording: Recording, exportable: Exportable, contract: GraphContract, recipe: Recipe) -> Recording:
    """Returns the recording with the relations between cases that the module itself keeps.

    Two answers of the module count as the same if a graph could not be told from it by them.
    """
    case = probe_case(recording.cases, contract)
    return replace(recording, invariants=measure_relations(TorchRunner(exportable), case, contract, recipe.tolerance))


def with_float64(recording: Recording, exportable: Exportable) -> Recording:
    """Returns the recording with the module's own answers in float64 to the cases of suite `quick`, which are short.

    Where there are none, a skipped check says why.
    """
    names = {case.name for case in exportable.cases("quick")}
    short = [case for case in recording.cases if case.name in names]
    try:
        if not short:
            raise SignatureError("none of the cases is one of suite quick")
        precise = run_in_float64(exportable, short)
    except SignatureError as e:
        skip = CheckResult(id="outputs.match", verdict="skip", detail=f"the noise floor is not measured: {e}")
        return replace(recording, checks=(*recording.checks, skip))
    assert isinstance(recording.runner, Recorded)
    return replace(recording, runner=replace(recording.runner, precise=precise))


@dataclass(frozen=True)
class SourceAnswers:
    """What the source of a bundle answered: by component, and what was found out of it as a whole.

    `generation` is what it generated; empty where its task does not generate, or only one case was asked for.
    """

    recordings: Mapping[str, Recording]
    weights_sha256: str
    checks: tuple[CheckResult, ...] = ()
    generation: GenerationEvidence = field(default_factory=GenerationEvidence)


def answers_of_source(
    bundle: Bundle,
    source: str,
    hub: HubOptions,
    suite: Suite | None,
    case: str | None = None,
    ask: Callable[[Runner], None] | None = None,
) -> SourceAnswers:
    """Loads the source that a bundle is said to come from, and records its answers to the cases of a suite.

    The recipe stored in the bundle decides task, dtype and axes; `suite` None: the suite of the export; `case`: only
    the case of that name; `ask` is given the module as a runner, for questions beyond the suite, before it is let go.

    Raises:
        VerificationError: the suite has no such case.
        BundleError: the source has other components than the bundle.
        SourceError, TaskError, SignatureError: as for an export.
    """
    recipe = bundle.manifest.recipe.model_copy(update={} if suite is None else {"suite": suite})
    loaded = load(source, recipe, hub)
    if set(loaded.components) != set(bundle.manifest.components):
        raise BundleError(
            f"{source} has the components {', '.join(loaded.components)}, the bundle "
            f"{', '.join(bundle.manifest.components)}; give the source that the bundle was made from"
        )
    by_component = {name: exportable.cases(recipe.suite) for name, exportable in loaded.components.items()}
    chosen = only([one for cases in by_component.values() for one in cases], case, f"suite {recipe.suite} has")
    recordings = {
        name: _record_component(
            bundle.component(name),
            exportable,
            recipe,
            [c for c in cases if c in chosen],
            exportable.left_out(recipe.suite) if case is None else {},
        ).of_component(name)
        for (name, exportable), cases in zip(loaded.components.items(), by_component.values(), strict=True)
        if case is None or any(c in chosen for c in cases)
    }
    if ask is not None:
        ask(TorchRunner(loaded.component()))
    checks: list[CheckResult] = []
    if loaded.processors.tokenizer is not None and in_suite("tokenizer.match", recipe.suite):
        record_of_source = record_tokenizer(loaded.processors.tokenizer)
        checks += check_tokenizer(bundle.path, record_of_source, trust_remote_code=hub.trust_remote_code)
    generation = record_evidence(loaded.record_generation if case is None else None, recipe.suite)
    return SourceAnswers(recordings, loaded.source.weights_sha256, tuple(checks), generation)


def _record_component(
    component: Component, exportable: Exportable, recipe: Recipe, cases: Sequence[Case], left_out: Mapping[str, str]
) -> Recording:
    contract = GraphContract(
        inputs=component.inputs, outputs=component.outputs, axes=component.axes, vocabularies=component.vocabularies
    )
    recording = record(exportable, cases, lambda done, total: None, left_out)
    recording = with_invariants(recording, exportable, contract, recipe)
    return with_float64(recording, exportable) if measures_noise(recipe.suite) else recording
