from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from onnxport.verify import (
    Case,
    GraphContract,
    OrtRunner,
    Recorded,
    Report,
    Statistics,
    TensorSpec,
    Tolerance,
    load_golden,
    save_golden,
    verify,
    verify_subject,
)
from onnxport.verify.errors import VerificationError
from onnxport.verify.runners import Runner
from onnxport.verify.suites import SUITES

STRICT = Tolerance(rtol=1e-3, atol=1e-4)


def test_two_runners(build, save, reference: Recorded, cases: list[Case], contract: GraphContract) -> None:
    with OrtRunner(save(build()), threads=1) as candidate:
        report = verify(reference, candidate, cases, STRICT, contract=candidate.contract)
    assert report.verdict == "pass"
    assert report.summary.failed == 0
    assert Counter(check.id for check in report.checks) == {
        "outputs.match": 4, "outputs.finite": 2, "outputs.sensitive": 2,
    }  # fmt: skip
    assert report.environment["provider"] == "CPUExecutionProvider"
    assert Report.from_json(report.to_json()) == report
    with OrtRunner(save(build(perturb=0.1)), threads=1) as candidate:
        assert verify(reference, candidate, cases, STRICT, contract=contract).verdict == "fail"


class Broken:
    name = "broken"

    def run(self, case: Case) -> dict[str, np.ndarray]:
        raise ZeroDivisionError("no weights")


class Silent:
    name = "silent"

    def run(self, case: Case) -> dict[str, np.ndarray]:
        return {}


def test_a_candidate_that_raises_fails(reference: Recorded, cases: list[Case], contract: GraphContract) -> None:
    report = verify(reference, Broken(), cases, STRICT, contract=contract, component="encoder", variant="int8")
    assert report.verdict == "fail"
    failed = [check for check in report.checks if check.verdict == "fail"]
    assert [(c.case, c.detail, c.component, c.variant) for c in failed] == [
        ("padded", "no weights", "encoder", "int8"),
        ("plain", "no weights", "encoder", "int8"),
    ]


@pytest.mark.parametrize(
    ("runner", "message"),
    [(Broken(), "The reference broken failed on case plain: no weights"), (Silent(), "no outputs")],
)
def test_a_reference_that_cannot_answer(runner: Runner, message: str, reference, cases, contract) -> None:
    with pytest.raises(VerificationError, match=message):
        verify(runner, reference, cases, STRICT, contract=contract)


def test_a_candidate_without_outputs_fails(reference, cases, contract) -> None:
    assert verify(reference, Silent(), cases, STRICT, contract=contract).verdict == "fail"


def test_questions_that_cannot_be_put(reference, cases, contract) -> None:
    with pytest.raises(VerificationError, match="no case"):
        verify(reference, reference, [], STRICT, contract=contract)
    with pytest.raises(VerificationError, match="Pass contract="):
        verify(reference, reference, cases, STRICT)
    unmasked = [Case(case.name, case.inputs) for case in cases]
    assert verify(reference, reference, unmasked, STRICT).verdict == "pass"
    other = contract.model_copy(update={"outputs": (TensorSpec(name="hidden", dtype="float32", shape=("batch", 4)),)})
    with pytest.raises(VerificationError, match=r"gave hidden \[2, 3, 4\] for case plain, and the contract has hidden"):
        verify(reference, reference, cases, STRICT, contract=other)


SUBJECT_CHECKS = {
    "graph.checker", "graph.opset", "graph.names", "graph.axes", "session.loads", "session.provider", "outputs.match",
    "outputs.finite", "outputs.sensitive", "fusion.expected",
}  # fmt: skip
PROBES = {"rows.independent", "padding.invariant", "iobinding.match", "inputs.rejected", "levels.match"}


def failed_ids(results) -> set[str]:
    return {result.id for result in results if result.verdict == "fail"}


def test_a_subject(build, save, subject_of, reference, cases) -> None:
    results = verify_subject(subject_of(save(build())), reference, cases, suite="quick")
    assert {r.id for r in results} == SUBJECT_CHECKS
    assert {(r.component, r.variant) for r in results} == {("model", "base")}
    assert {r.id for r in results if r.verdict != "pass"} == {"fusion.expected"}
    assert Report.of(results, STRICT).verdict == "pass"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"perturb": 0.05}, {"outputs.match"}),
        ({"axes": (2, "sequence")}, {"graph.axes"}),
        ({"inputs": ("attention_mask", "input_ids")}, {"graph.names"}),
        ({"opsets": {"": 16}}, {"graph.opset"}),
        ({"outputs": ("hidden",)}, {"graph.names", "graph.axes", "outputs.match"}),
        ({"outputs": ("hidden", "pooled", "float_mask")}, {"graph.names", "outputs.match"}),
    ],
)
def test_each_fault_fails_its_own_checks(changes, expected, build, save, subject_of, reference, cases) -> None:
    results = verify_subject(subject_of(save(build(**changes))), reference, cases, suite="quick")
    assert failed_ids(results) == expected


def test_a_baked_axis(build, save, subject_of, reference, cases) -> None:
    results = verify_subject(subject_of(save(build(axes=("batch", 3)))), reference, cases, suite="quick")
    assert failed_ids(results) == {"graph.axes", "outputs.match"}
    (failed,) = [r for r in results if r.id == "outputs.match" and r.verdict == "fail"]
    assert failed.case == "padded"
    assert "Expected: 3" in failed.detail


def test_a_graph_that_does_not_load(tmp_path: Path, subject_of, reference, cases) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no protobuf")
    subject = subject_of(tmp_path / "model.onnx", required_fusions={"Attention": 1})
    results = verify_subject(subject, reference, cases)
    assert {r.id for r in results} == SUBJECT_CHECKS | PROBES
    assert failed_ids(results) == {"graph.checker", "session.loads"}
    assert {r.verdict for r in results if r.id not in failed_ids(results)} == {"skip"}
    assert all(r.detail for r in results)
    assert not any(str(tmp_path) in r.detail for r in results)
    assert Report.of(results, STRICT).verdict == "fail"


def test_suites_put_the_checks_of_their_line(build, save, subject_of, reference, cases) -> None:
    subject = subject_of(save(build()))
    quick, standard, full = (verify_subject(subject, reference, cases, suite=suite) for suite in SUITES)
    assert {r.id for r in quick} == SUBJECT_CHECKS
    assert {r.id for r in standard} == SUBJECT_CHECKS | PROBES
    assert {r.id for r in full} == SUBJECT_CHECKS | PROBES | {"reload.match"}
    assert not failed_ids(full)
    with pytest.raises(VerificationError, match="no suite"):
        verify_subject(subject, reference, cases, suite="complete")


def test_cases_are_looked_at_before_the_file(tmp_path: Path, subject_of, reference) -> None:
    with pytest.raises(VerificationError, match="no case"):
        verify_subject(subject_of(tmp_path / "missing.onnx"), reference, [])


def test_golden_tensors(build, save, subject_of, reference, cases, tmp_path: Path) -> None:
    save_golden(tmp_path / "golden.safetensors", cases, reference.outputs)
    stored, replay = load_golden(tmp_path / "golden.safetensors")
    results = verify_subject(subject_of(save(build())), replay, stored, golden=True, suite="quick")
    assert {r.id for r in results} == SUBJECT_CHECKS - {"outputs.match"} | {"golden.match"}
    assert not failed_ids(results)
    assert Report.of(results, STRICT).verdict == "pass"
    results = verify_subject(subject_of(save(build(perturb=0.05))), replay, stored, golden=True, suite="quick")
    assert failed_ids(results) == {"golden.match"}


def test_quantised_garbage_fails_statistics(build, save, subject_of, reference, cases) -> None:
    criterion = Statistics(min_cosine=0.95)
    good = verify_subject(subject_of(save(build(perturb=0.001)), criterion=criterion), reference, cases, suite="quick")
    assert not failed_ids(good)
    bad = verify_subject(subject_of(save(build(scale=-1.0)), criterion=criterion), reference, cases, suite="quick")
    assert failed_ids(bad) == {"outputs.match"}


def test_a_zero_reference_passes_nothing(build, save, subject_of, cases, contract) -> None:
    path = save(build(scale=0.0))
    with OrtRunner(path, threads=1) as runner:
        zero = Recorded("zero", {case.name: runner.run(case) for case in cases})
    assert failed_ids(verify_subject(subject_of(path), zero, cases, suite="quick")) == {"outputs.sensitive"}


def test_one_session_at_a_time(build, save, subject_of, reference, cases, monkeypatch) -> None:
    alive: list[int] = []
    opened, closed = OrtRunner.__init__, OrtRunner.close

    def open_(self, *args, **options) -> None:
        opened(self, *args, **options)
        alive.append(alive[-1] + 1 if alive else 1)

    def close(self) -> None:
        closed(self)
        alive.append(alive[-1] - 1)

    monkeypatch.setattr(OrtRunner, "__init__", open_)
    monkeypatch.setattr(OrtRunner, "close", close)
    verify_subject(subject_of(save(build())), reference, cases, suite="full")
    verify_subject(subject_of(save(build())), reference, cases)
    assert set(alive) == {0, 1}
    assert len(alive) == 2 * (1 + 3 + len({1, os.cpu_count()}) + 2) + 2 * (1 + 3)
    with pytest.raises(VerificationError):
        verify_subject(subject_of(save(build())), Broken(), cases)
    assert alive[-1] == 0
