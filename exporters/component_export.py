"""One component on its way from a module to verified files.

`trace` needs the module: it writes the graph with the first engine that can, and records what PyTorch answers. `build`
makes the variants of that graph and compares them with what was recorded, when the module is released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.exporters.bundle import variant_entry
from onnxport.exporters.engines import Engine
from onnxport.exporters.errors import EngineError, ReadBackError, SignatureError, VariantError
from onnxport.exporters.graph import Graph
from onnxport.exporters.manifest import Attempt, Component
from onnxport.exporters.onnx_writer import data_file, write_model
from onnxport.exporters.progress import Progress
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.recording import Recording
from onnxport.exporters.variants import KINDS, VariantBuilder
from onnxport.exporters.variants.child import Children
from onnxport.exporters.variants.of_choice import ChoiceBuilder
from onnxport.exporters.verification import check_subject, component_subjects
from onnxport.verify import save_golden, select_golden
from onnxport.verify.cases import axis_sizes
from onnxport.verify.contract import GraphContract
from onnxport.verify.report import CheckResult
from onnxport.verify.runners import Recorded
from onnxport.verify.suites import checks_at_export, in_suite, measures_noise

if TYPE_CHECKING:
    from onnxport.exporters.exportable import Exportable

MADE_OF_PARTS = "merge"
"""What bundle.json names as the engine of a component whose graph is made of others."""


@dataclass(frozen=True)
class Workplace:
    """What all components of one export share.

    Attributes:
        root: the bundle while it is built; `work`, a folder above it, is for scratch files.
        beside: runs what need not wait for PyTorch.
        children: runs what needs a process of its own.
        verify: whether anything is compared with PyTorch.
        several: whether the model has more than one component, so that stages say which one they are about.
    """

    recipe: Recipe
    root: Path
    work: Path
    beside: Executor
    children: Children
    progress: Progress
    verify: bool
    several: bool = False


@dataclass
class ComponentExport:
    """One component on its way: `engines` are still to be tried, `attempts` were tried and left.

    `parts`: the components that its graph is made of, instead of by an engine.
    """

    name: str
    engines: list[Engine]
    attempts: list[Attempt] = field(default_factory=list)
    recording: Recording | None = None
    traced: Traced | None = None
    entry: Component | None = None
    checks: list[CheckResult] = field(default_factory=list)
    broken: VariantError | None = None
    parts: tuple[ComponentExport, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether what was built does not agree with PyTorch, or broke while another engine is left to be tried."""
        return self.broken is not None or any(check.verdict == "fail" for check in self.checks)

    def give_up_engine(self, reason: str) -> None:
        """Notes why the engine at hand was left."""
        self.attempts.append(Attempt(engine=self.engines.pop(0).name, reason=reason))

    def golden(self) -> str:
        """The path of the golden tensors in the bundle."""
        return f"verification/golden{'' if self.name == 'model' else '.' + self.name}.safetensors"


@dataclass(frozen=True)
class Traced:
    """A graph on disk, and what is kept of the module besides: it can be released."""

    engine: str
    graph: Graph
    builder: VariantBuilder | ChoiceBuilder
    prepared: Future[None]
    mask: str | None
    decisions: Mapping[str, int]
    example: Mapping[str, int]


def trace(place: Workplace, component: ComponentExport, exportable: Exportable) -> None:
    """Writes the graph with the first engine that can, and records what PyTorch answers if that is not known yet.

    Raises:
        EngineError, ReadBackError: no engine can; with several tried, the message has each one's reason.
        SignatureError: PyTorch itself fails, or an axis cannot be shown to be dynamic.
    """
    from onnxport.exporters.signature import probe_contract

    recipe, contract = place.recipe, None
    while contract is None or component.traced is None:
        engine = component.engines[0]
        with place.progress.stage(f"Export{_of(place, component)} with {engine.name}, opset {recipe.opset}") as stage:
            contract = contract or probe_contract(exportable, recipe.opset)
            try:
                component.traced = _trace_with(engine, place, component, exportable, contract)
            except (EngineError, ReadBackError) as e:
                component.give_up_engine(str(e))
                if not component.engines:
                    if len(component.attempts) == 1:
                        raise
                    raise _no_engine(component) from e
                stage.note(f"{e}; trying {component.engines[0].name}")
            else:
                folder = component.traced.graph.path.parent
                stage.size(sum(f.stat().st_size for f in folder.glob(f"{component.traced.graph.path.stem}.onnx*")))
    if place.verify and component.recording is None:
        component.recording = _record(place, component, exportable, contract)


def _trace_with(
    engine: Engine, place: Workplace, component: ComponentExport, exportable: Exportable, contract: GraphContract
) -> Traced:
    from onnxport.exporters.read_back import check_written

    path = KINDS["base"].path(place.root, component.name)
    for leftover in (path, data_file(path)):  # of an engine that was left
        leftover.unlink(missing_ok=True)
    traced = engine.load()(exportable, contract)
    write_model(traced.skeleton, traced.weights, path, external_data=place.recipe.external_data)
    del traced
    check_written(path, contract)
    graph = Graph(component.name, path, contract, exportable.hints, exportable.example)
    builder = VariantBuilder(
        graph, place.root, place.work, place.recipe.level, place.recipe.target, place.recipe.external_data,
        place.children,
    )  # fmt: skip
    # Fusion runs in a child process: there is no need to wait for it before PyTorch runs the cases.
    prepared = place.beside.submit(builder.prepare, place.recipe.variants)
    return Traced(engine.name, graph, builder, prepared, exportable.mask, exportable.decisions, exportable.example)


def put_together(
    place: Workplace, component: ComponentExport, exportable: Exportable, made: Sequence[ComponentExport]
) -> None:
    """Prepares a component that is made of others, which are among those `made`: instead of `trace`.

    Raises:
        SignatureError: PyTorch itself fails, or answers in other shapes than those of the parts.
    """
    choice = exportable.choice
    assert choice is not None
    by_name = {other.name: other for other in made}
    component.parts = tuple(by_name[name] for name in choice.parts)
    if_true, if_false = (part.traced for part in component.parts)
    assert if_true is not None
    assert if_false is not None
    assert isinstance(if_true.builder, VariantBuilder)
    assert isinstance(if_false.builder, VariantBuilder)
    contract = choice.contract(exportable, if_true.graph.contract, if_false.graph.contract)
    path = KINDS["base"].path(place.root, component.name)
    graph = Graph(component.name, path, contract, exportable.hints, exportable.example)
    builder = ChoiceBuilder(graph, choice, if_true.builder, if_false.builder)
    prepared = place.beside.submit(builder.prepare, place.recipe.variants)
    component.traced = Traced(
        MADE_OF_PARTS, graph, builder, prepared, exportable.mask, exportable.decisions, exportable.example
    )
    if place.verify and component.recording is None:
        component.recording = _record(place, component, exportable, contract)


def _no_engine(component: ComponentExport) -> EngineError:
    told = "; ".join(f"{attempt.engine}: {attempt.reason}" for attempt in component.attempts)
    return EngineError(f"no engine can export {component.name} ({told})")


def _record(place: Workplace, component: ComponentExport, exportable: Exportable, contract: GraphContract) -> Recording:
    from onnxport.exporters.reference import record, with_float64, with_invariants
    from onnxport.exporters.signature import require_conformity

    recipe = place.recipe
    cases = exportable.cases(recipe.suite)
    with place.progress.stage(f"Reference{_of(place, component)}: {len(cases)} cases in PyTorch") as stage:
        recording = record(exportable, cases, stage.advance, exportable.left_out(recipe.suite))
        if in_suite("rows.independent", recipe.suite):  # stored, so that `verify` can ask for it without PyTorch
            recording = with_invariants(recording, exportable, contract, recipe)
        if measures_noise(recipe.suite):
            recording = with_float64(recording, exportable)
        for name, reason in recording.refused.items():
            stage.note(f"case {name} left out: {reason}")
        assert isinstance(recording.runner, Recorded)
        for case in recording.cases:
            require_conformity(contract, case, recording.runner.outputs[case.name])
        path = place.root / component.golden()
        path.parent.mkdir(exist_ok=True)
        golden = select_golden(recording.cases, recording.runner.outputs)
        save_golden(path, golden, recording.runner.outputs)
        stage.size(path.stat().st_size)
    return recording.of_component(component.name)


def build(place: Workplace, component: ComponentExport) -> None:
    """Makes the variants of a traced component, and compares them with what was recorded.

    Raises:
        VariantError: a step failed, and no engine is left to be tried.
        ReadBackError: the file of a component that is made of others is not what it promises.
        SignatureError: an axis was never run at a size other than the traced one.
    """
    traced, recording = component.traced, component.recording
    assert traced is not None
    component.broken = None
    if any(part.broken is not None for part in component.parts):
        return  # made again when they are
    variants = {}
    for name in place.recipe.variants:
        with place.progress.stage(f"Variant {name}{_of(place, component)}") as stage:
            try:
                if name != "base":
                    traced.prepared.result()
                variant = traced.builder.build(name)
            except VariantError as e:
                if not (place.verify and component.engines[1:]):
                    raise
                # What is made of a graph may break because the graph is wrong: another engine's may be right.
                component.broken = e
                return
            for note in variant.notes:
                stage.note(note)
            variants[name] = variant_entry(variant, place.root)
            stage.size(variants[name].size_bytes)
    contract = traced.graph.contract
    proven = _proven_sizes(traced, recording) if recording is not None else {}
    component.entry = Component(
        inputs=contract.inputs,
        outputs=contract.outputs,
        axes={
            name: axis.model_copy(update={"proven": proven[name]}) if name in proven else axis
            for name, axis in contract.axes.items()
        },
        mask=traced.mask,
        vocabularies=contract.vocabularies,
        decisions=dict(traced.decisions),
        engine=traced.engine,
        attempts=tuple(component.attempts),
        variants=variants,
        golden=component.golden() if recording is not None else None,
        invariants=recording.invariants if recording is not None else None,
    )
    if recording is None:
        return
    component.checks = [*recording.checks]
    suite = checks_at_export(place.recipe.suite)
    for subject in component_subjects(place.root, component.name, component.entry, place.recipe):
        with place.progress.stage(f"Verify {subject.variant}{_of(place, component)}"):
            component.checks += check_subject(subject, recording, suite)


def _proven_sizes(traced: Traced, recording: Recording) -> dict[str, tuple[int, ...]]:
    """The sizes of each axis among the cases.

    Raises:
        SignatureError: an axis was never run at a size other than the traced one, so nothing shows that it is dynamic.
    """
    contract = traced.graph.contract
    sizes: dict[str, set[int]] = {axis: set() for axis in contract.axes}
    for case in recording.cases:
        for axis, size in axis_sizes(case, contract).items():
            sizes[axis].add(size)
    for axis, seen in sizes.items():
        if contract.axes[axis].fixed is None and not seen - {traced.example[axis]}:
            raise SignatureError(
                f"axis {axis!r} could not be shown to be dynamic: PyTorch itself fails at every size but "
                f"{traced.example[axis]}; fix it with --static {axis}={traced.example[axis]}"
            )
    return {axis: tuple(sorted(seen)) for axis, seen in sizes.items()}


def _of(place: Workplace, component: ComponentExport) -> str:
    return f" {component.name}" if place.several else ""
