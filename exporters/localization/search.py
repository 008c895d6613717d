"""From a bundle and its source to the first layer, or the optimisation pass, that is wrong."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.errors import BundleError
from onnxport.exporters.exportable import Exportable
from onnxport.exporters.graph import Graph
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.loading import load
from onnxport.exporters.localization.findings import (
    LayerFinding,
    Localization,
    PassFinding,
    VariantFinding,
    Verdict,
)
from onnxport.exporters.localization.layers import LayerOutput, record_layers
from onnxport.exporters.localization.passes import AS_WRITTEN, Judge, blame_load, blame_making
from onnxport.exporters.localization.reproduction import DOCUMENT, clear, require_free, write_reproduction
from onnxport.exporters.localization.scopes import Match, MatchedLayer, Scopes, bind
from onnxport.exporters.localization.walk import ratio, tightened, walk, walk_pieces
from onnxport.exporters.progress import SILENT, Progress
from onnxport.exporters.recipe import Suite
from onnxport.exporters.recording import Recording
from onnxport.exporters.reference import record
from onnxport.exporters.suggestion import expected_one_of
from onnxport.exporters.variants import VariantBuilder
from onnxport.exporters.verification import subjects
from onnxport.verify.cases import Case
from onnxport.verify.dissection import Arrays, Dissection
from onnxport.verify.errors import SessionError, VerificationError
from onnxport.verify.runners import OrtRunner
from onnxport.verify.subject import Subject
from onnxport.verify.tolerance import Criterion
from onnxport.verify.trial import CaseOutcome, Trial

_BASE = "base"


def localize(
    bundle: Bundle,
    source: str,
    hub: HubOptions,
    out: Path,
    *,
    component: str | None = None,
    variants: Collection[str] | None = None,
    suite: Suite | None = None,
    case: str | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    progress: Progress = SILENT,
) -> Localization:
    """Compares the graphs of a bundle with PyTorch, layer by layer, and what differs step by step of its making.

    Args:
        bundle: what `load_bundle` returned.
        source: the PyTorch model it was made from.
        out: folder for the reproductions; written only if something diverges. One from an earlier run is replaced.
        component: which graph of the model; None: the only one.
        variants: names of the variants to look into; None: all.
        suite: the cases to choose from; None: those of the export. The smallest that fails is chosen, else the worst.
        case: name of the case to use instead.
        rtol, atol: instead of the recipe's.
        progress: is told of every stage.

    Raises:
        BundleError: no such component or variant, several components and none named, or `out` holds something else.
        VerificationError: no such case.
        SourceError, TaskError, SignatureError: as for an export.
        VariantError: a step of making a variant again failed.
    """
    require_free(out)
    name = bundle.component_name(component)
    asked = [s for s in subjects(bundle.path, bundle.manifest, variants, rtol=rtol, atol=atol) if s.component == name]
    base = next(s for s in subjects(bundle.path, bundle.manifest, [_BASE], rtol=rtol, atol=atol) if s.component == name)
    recipe = bundle.manifest.recipe
    with progress.stage("Reference in PyTorch") as stage:
        exportable = load(source, recipe, hub).component(name)
        if exportable.choice is not None:
            raise BundleError(f"{name} is made of {' and '.join(exportable.choice.parts)}; localize one of these")
        recording = record(exportable, _cases(exportable, suite or recipe.suite, case), stage.advance)
        for refused, reason in recording.refused.items():
            stage.note(f"case {refused} left out: {reason}")
    search = _Search(bundle, exportable, recording, base)
    found: list[VariantFinding] = []
    for subject in asked:
        with progress.stage(f"Layers of {subject.variant}") as stage:
            finding = search.look_into(subject)
            found.append(finding)
            if not finding.layers:
                stage.note(finding.summary)
    for number, finding in enumerate(found):
        if finding.variant != _BASE and finding.verdict == "diverges" and not finding.blame and search.base_agrees():
            with progress.stage(f"Steps of {finding.variant}"):
                blame = search.blame(asked[number])
                found[number] = finding.model_copy(
                    update={"blame": blame, "summary": f"{finding.summary}; {blame.detail}"}
                )
    verdicts = {finding.verdict for finding in found}
    verdict: Verdict = next(one for one in ("diverges", "agrees", "unmatched") if one in verdicts)
    result = Localization(verdict=verdict, source=bundle.manifest.source.model, variants=tuple(found))
    return _write(result, search, out) if verdict == "diverges" else result


@dataclass(frozen=True, eq=False)
class _Walked:
    """The layers of one graph, and what it takes to reproduce one of them."""

    layers: Sequence[LayerFinding]
    criterion: Criterion
    options: Mapping[str, str]
    graph: Dissection
    case: Case
    known: Arrays
    matched: Sequence[MatchedLayer]

    @property
    def first(self) -> int | None:
        """The number of the first layer that diverges."""
        return next((number for number, layer in enumerate(self.layers) if layer.verdict == "diverges"), None)


@dataclass(eq=False)
class _Search:
    bundle: Bundle
    exportable: Exportable
    recording: Recording
    base: Subject
    walked: dict[str, _Walked] = field(default_factory=dict)
    _findings: dict[str, VariantFinding] = field(default_factory=dict)
    _recorded: tuple[str, Sequence[MatchedLayer]] | None = None
    _lenient: bool = False

    def look_into(self, subject: Subject) -> VariantFinding:
        """Compares outputs as a consumer sees them, then layers as they stand in the file."""
        outcome = self._worst(subject)
        case = next(case for case in self.recording.cases if case.name == outcome.case)
        agrees = _agrees(outcome)
        walked: _Walked | None = None
        blame: PassFinding | None = None
        trouble = outcome.failure
        if subject.path.suffix != ".onnx":
            trouble = trouble or "ONNX Runtime's own format shows no layers (those of base: --variant base)"
        else:
            try:
                walked = self._walk(subject, case, AS_WRITTEN, whole=not outcome.failure)
                if not agrees and walked.first is None and not self._lenient:
                    self._lenient, self._recorded = True, None
                    walked = self._walk(subject, case, AS_WRITTEN, whole=not outcome.failure)
                if not agrees and walked.first is None and not outcome.failure:
                    walked, blame = self._look_closer(subject, case, walked)
            except SessionError as e:
                trouble = trouble or str(e)
        if walked is not None:
            self.walked[subject.variant] = walked
        layers, first = (walked.layers, walked.first) if walked is not None else ((), None)
        if walked is not None and not layers:
            trouble = trouble or self._why_no_layers(subject)
        finding = VariantFinding(
            variant=subject.variant,
            verdict="diverges" if not agrees or first is not None else "agrees" if layers else "unmatched",
            case=case.name,
            outputs={c.output: c.detail for c in outcome.comparisons},
            layers=tuple(layers),
            session_options=dict(walked.options if walked is not None else subject.session_options),
            criterion=walked.criterion if walked is not None else subject.criterion,
            first=first,
            blame=blame,
            summary=_summary(
                layers,
                first,
                agrees,
                blame,
                trouble,
                tight=walked is not None and walked.criterion != subject.criterion,
                failed=outcome.failure is not None,
            ),
        )
        self._findings[subject.variant] = finding
        return finding

    def _look_closer(self, subject: Subject, case: Case, walked: _Walked) -> tuple[_Walked, PassFinding | None]:
        """For outputs that differ without a layer that does: ONNX Runtime breaks it, or a layer hides in the tolerance.

        Only passes that change the file while it is loaded can be the reason if no layer differs even as it runs.
        """
        if all(layer.verdict == "agrees" for layer in walked.layers):
            blame = blame_load(self._judge(subject, case), subject.path, subject.session_options)
            if blame is not None:
                return self._walk(subject, case, subject.session_options), blame
        criterion = tightened(walked.criterion, walked.layers)
        if criterion is None:
            return walked, None
        return self._walk(subject, case, walked.options, criterion), None

    def _why_no_layers(self, subject: Subject) -> str:
        """What to do where a graph was walked and there was nothing on the way."""
        if not self._matches():
            engine = self.bundle.component(subject.component).engine
            other = "dynamo" if engine == "torchscript" else "torchscript"
            return (
                "no layer could be compared: nothing in base tells which PyTorch module it comes from; export the "
                f"model with --engine {other} and localize that bundle"
            )
        if subject.variant != _BASE:
            return "no layer could be compared: optimisation left no value of one; base has them (--variant base)"
        return "no layer could be compared: no module that was matched returns anything in this case; choose a --case"

    def base_agrees(self) -> bool:
        """Whether the graph as exported agrees; looked into if it was not asked for."""
        if _BASE not in self._findings:
            self.look_into(self.base)
        return self._findings[_BASE].verdict != "diverges"

    def blame(self, subject: Subject) -> PassFinding:
        """Makes a variant again, step by step, and finds the one that breaks it."""
        name = self._findings[subject.variant].case
        case = next(case for case in self.recording.cases if case.name == name)
        recipe = self.bundle.manifest.recipe
        with tempfile.TemporaryDirectory(prefix="onnxport-") as folder:
            graph = Graph(
                self.base.component, self.base.path, self.base.contract, self.exportable.hints, self.exportable.example
            )
            builder = VariantBuilder(graph, Path(folder), Path(folder), recipe.level, recipe.target, "always")
            return blame_making(self._judge(self.base, case), builder, subject.variant)

    def _judge(self, subject: Subject, case: Case) -> Judge:
        return Judge(self.recording.runner, case, subject.criterion, subject.contract)

    def _worst(self, subject: Subject) -> CaseOutcome:
        """The smallest case that fails; if none does, the one that comes nearest to it."""
        cases = {case.name: case for case in self.recording.cases}
        size = {name: sum(array.size for array in case.inputs.values()) for name, case in cases.items()}
        try:
            runner = OrtRunner(subject.path, session_options=subject.session_options)
        except SessionError as e:
            return CaseOutcome(min(size, key=lambda name: size[name]), failure=str(e))
        with runner:
            trial = Trial(
                self.recording.runner,
                runner,
                self.recording.cases,
                subject.criterion,
                contract=subject.contract,
                component=subject.component,
                variant=subject.variant,
            )
            outcomes = trial.outcomes
        failing = [outcome for outcome in outcomes if not _agrees(outcome)]
        if failing:
            return min(failing, key=lambda o: size[o.case])
        return max(outcomes, key=lambda o: max((ratio(c, subject.criterion) for c in o.comparisons), default=0.0))

    def _walk(
        self,
        subject: Subject,
        case: Case,
        options: Mapping[str, str],
        criterion: Criterion | None = None,
        *,
        whole: bool = True,
    ) -> _Walked:
        criterion = criterion or subject.criterion
        if self._recorded is None or self._recorded[0] != case.name:  # one case's layers at a time
            self._recorded = (case.name, bind(self._matches(), self._layers(case)))
        layers = self._recorded[1]
        graph, base = Dissection(subject.path), Dissection(self.base.path)
        findings, known = (walk if whole else walk_pieces)(graph, base, layers, case, criterion, options)
        return _Walked(findings, criterion, options, graph, case, known, layers)

    def _layers(self, case: Case) -> list[LayerOutput]:
        as_traced = self.bundle.component(self.base.component).engine == "torchscript"
        return record_layers(self.exportable, case, as_traced=as_traced)

    def _matches(self) -> list[Match]:
        scopes, shapes = self._scopes
        return scopes.match(shapes, leniently=self._lenient)

    @cached_property
    def _scopes(self) -> tuple[Scopes, dict[str, tuple[tuple[int, ...], np.dtype]]]:
        """At the sizes of the trace, which are all different: a batch of 3 is not taken for 3 tokens."""
        inputs = self.exportable.sample(self.exportable.example, np.random.default_rng(0))
        base = Dissection(self.base.path)
        scopes = Scopes(base, self._layers(Case("example", inputs)))
        try:
            shapes = {value: (array.shape, array.dtype) for value, array in base.run(scopes.values, inputs)}
        except SessionError:  # without shapes, the lenient match is left
            shapes = {}
        return scopes, shapes


def _cases(exportable: Exportable, suite: str, name: str | None) -> list[Case]:
    cases = exportable.cases(suite)
    if name is None:
        return cases
    chosen = [case for case in cases if case.name == name]
    if not chosen:
        names = [case.name for case in cases]
        raise VerificationError(f"suite {suite!r} has no case {name!r}; {expected_one_of(name, names)}")
    return chosen


def _agrees(outcome: CaseOutcome) -> bool:
    return outcome.failure is None and all(comparison.agrees for comparison in outcome.comparisons)


def _summary(
    layers: Sequence[LayerFinding],
    first: int | None,
    agrees: bool,
    blame: PassFinding | None,
    trouble: str | None,
    tight: bool,
    failed: bool,
) -> str:
    parts = [] if trouble is None else [trouble]
    if first is not None:
        layer = layers[first]
        how = layer.failure or f"{layer.alone_ratio:.3g} times the difference allowed to it"
        parts.append(f"{layer.module or 'the model'} ({layer.kind}) is wrong on the inputs it has in PyTorch: {how}")
        if tight:
            parts.append(
                "as none is beyond the tolerance alone, ten times what its layers commonly differ by is allowed"
            )
        more = sum(layer.verdict == "diverges" for layer in layers) - 1
        if more:
            parts.append(f"so are {more} layers after it")
        if agrees:
            parts.append("the outputs are within tolerance nevertheless")
    elif trouble is not None:
        if not failed:
            parts.append("the outputs agree" if agrees else "the outputs differ")
    elif not agrees:
        worst = max(layers, key=lambda layer: layer.alone_ratio or 0.0)
        parts.append(
            "no layer alone is out of tolerance or stands out: the differences of many layers add up, the largest "
            f"being {worst.alone_ratio:.3g} times the allowed one in {worst.module or 'the model'} ({worst.kind})"
        )
    else:
        parts.append(f"all {len(layers)} layers agree")
    if blame is not None:
        parts.append(blame.detail)
    return "; ".join(parts)


def _write(result: Localization, search: _Search, out: Path) -> Localization:
    try:
        clear(out)
        variants = []
        for finding in result.variants:
            if finding.first is not None:
                layer = finding.layers[finding.first]
                walked = search.walked[finding.variant]
                expected = next(one.array for one in walked.matched if one.value == layer.value)
                write_reproduction(
                    out / finding.variant,
                    walked.graph,
                    layer,
                    walked.case,
                    walked.known,
                    expected,
                    finding.criterion,
                    finding.session_options,
                )
                finding = finding.model_copy(update={"reproduction": finding.variant})
            variants.append(finding)
        result = result.model_copy(update={"variants": tuple(variants)})
        (out / DOCUMENT).write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
    except OSError as e:
        raise BundleError(f"{out} cannot be written: {e.strerror or e}. Choose another folder with --out.") from e
    return result
