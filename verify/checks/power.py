"""outputs.sensitive, further: planted faults that the comparison must see, or its passes prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from onnxport.verify.cases import Case
from onnxport.verify.errors import SessionError
from onnxport.verify.inspection import without_folder
from onnxport.verify.perturbed_weight import copy_with_perturbed_weight
from onnxport.verify.probe import Probe
from onnxport.verify.report import CheckResult, Verdict
from onnxport.verify.runners import OrtRunner, Runner
from onnxport.verify.trial import Trial

_ID = "outputs.sensitive"

Inputs = Mapping[str, np.ndarray]


def check_power(probe: Probe) -> list[CheckResult]:
    """A changed weight, two inputs exchanged and a mask of ones are each seen in some case on which the graph agrees.

    One result for each fault, skipped where there is nothing to plant it in; none for a subject in which no faults are
    planted. Opens sessions of its own, one after the other.
    """
    if not probe.subject.plants_faults:
        return []
    agreeing = {one.case for one in probe.trial.outcomes if one.comparisons and all(c.agrees for c in one.comparisons)}
    cases = [case for case in probe.trial.cases if case.name in agreeing]
    if not cases:
        detail = "the graph agrees in no case, so nothing shows that a fault more would be seen"
        return [_result(probe, name, "skip", detail) for name in ("mask", "swapped", "weights")]
    try:
        with _open(probe, probe.subject.path) as runner:
            results = [_mask(probe, runner, cases), _swapped(probe, runner, cases)]
        return [*results, _weights(probe, cases)]
    except SessionError as e:
        return [_result(probe, "weights", "fail", without_folder(str(e), probe.subject.path))]


def _weights(probe: Probe, cases: Iterable[Case]) -> CheckResult:
    if not probe.subject.is_onnx:
        return _result(probe, "weights", "skip", f"{probe.subject.path.name} holds no ONNX protos")
    with TemporaryDirectory(prefix="onnxport-") as folder:
        copied = copy_with_perturbed_weight(probe.subject.path, Path(folder))
        if copied is None:
            return _result(probe, "weights", "skip", "the graph has no floating-point weight of two dimensions or more")
        path, name = copied
        with _open(probe, path) as runner:
            seen = _seen(probe, runner, cases)
    return _judged(probe, "weights", f"{name} multiplied by 1.05 and 0.95 in turn", seen)


def _mask(probe: Probe, runner: Runner, cases: Iterable[Case]) -> CheckResult:
    padded = [case for case in cases if case.mask is not None and not case.inputs[case.mask].all()]
    if not padded:
        return _result(probe, "mask", "skip", "no case on which the graph agrees has padding")

    def ones(case: Case) -> Inputs:
        assert case.mask is not None
        return {**case.inputs, case.mask: np.ones_like(case.inputs[case.mask])}

    return _judged(probe, "mask", f"{padded[0].mask} all ones", _seen(probe, _Altered(runner, ones), padded))


def _swapped(probe: Probe, runner: Runner, cases: Iterable[Case]) -> CheckResult:
    """Exchanging inputs in which a function is symmetric is no fault; that either of them matters shows the power."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for spec in probe.contract.inputs:
        alike.setdefault((spec.dtype, spec.shape), []).append(spec.name)
    found: dict[Verdict, list[str]] = {"pass": [], "fail": [], "skip": []}
    for first, second in (pair for names in alike.values() for pair in pairwise(names)):
        differing = [case for case in cases if not np.array_equal(case.inputs[first], case.inputs[second])]
        fault = f"{first} and {second} exchanged"
        if not differing:
            found["skip"].append(f"{first} and {second} are equal in every case")
        elif seen := _seen(probe, _Altered(runner, _exchange(first, second)), differing):
            found["pass"].append(f"{fault}: seen in {seen}")
        elif _seen(probe, _Altered(runner, _exchange(second, second, at=first)), differing):
            found["skip"].append(f"the graph is symmetric in {first} and {second}")
        else:
            found["fail"].append(f"{fault}: not seen in any of {len(differing)} cases")
    for verdict in ("fail", "pass", "skip"):
        if found[verdict]:
            return _result(probe, "swapped", verdict, "; ".join(found[verdict]))
    return _result(probe, "swapped", "skip", "no two inputs have one dtype and one shape")


def _exchange(first: str, second: str, at: str | None = None) -> Callable[[Case], Inputs]:
    """Exchanges two inputs; with `at`, gives the first one there instead."""
    if at is not None:
        return lambda case: {**case.inputs, at: case.inputs[first]}
    return lambda case: {**case.inputs, first: case.inputs[second], second: case.inputs[first]}


@dataclass(frozen=True)
class _Altered:
    """Runs other inputs than those of the case, which the comparison knows nothing of."""

    runner: Runner
    alter: Callable[[Case], Inputs]
    name: str = "altered"

    def run(self, case: Case) -> dict[str, np.ndarray]:
        return self.runner.run(replace(case, inputs=self.alter(case)))


def _open(probe: Probe, path: Path) -> OrtRunner:
    subject = probe.subject
    return OrtRunner(path, provider=subject.provider, session_options=subject.session_options)


def _seen(probe: Probe, candidate: Runner, cases: Iterable[Case]) -> str | None:
    """Returns where the comparison sees the fault, in words: the first case in which it does. None: in no case."""
    subject = probe.subject
    for case in cases:
        trial = Trial(
            probe.trial.reference,
            candidate,
            [case],
            subject.criterion,
            contract=subject.contract,
            component=subject.component,
            variant=subject.variant,
        )
        (outcome,) = trial.outcomes
        differing = [c for c in outcome.comparisons if not c.agrees]
        if outcome.failure is not None:
            return f"{case.name}: {outcome.failure}"
        if differing:
            return f"{case.name}, {differing[0].output}: {differing[0].detail}"
    return None


def _judged(probe: Probe, name: str, fault: str, seen: str | None) -> CheckResult:
    if seen is not None:
        return _result(probe, name, "pass", f"{fault}: seen in {seen}")
    return _result(probe, name, "fail", f"{fault}: not seen in any case; what is allowed hides it, or it has no effect")


def _result(probe: Probe, name: str, verdict: Verdict, detail: str) -> CheckResult:
    return probe.trial.result(_ID, verdict, detail, case=f"power.{name}")
