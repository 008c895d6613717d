"""Latencies are measured and not judged: what is asserted is that they are possible, never what they are."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest

from onnxport.verify import Case, Latency, Report, Tolerance, measure_latency, verify_subject
from onnxport.verify.errors import SessionError, VerificationError
from onnxport.verify.latency import LEAST_RUNS, MOST_RUNS, different_sizes
from onnxport.verify.own_process import durations

QUICK_S = 0.1


def ones(name: str, *shape: int) -> Case:
    array = np.ones(shape, dtype=np.int64)
    return Case(name, {"input_ids": array, "attention_mask": array}, "attention_mask")


def test_every_number_is_possible(build, save, subject_of, cases) -> None:
    measured = measure_latency(subject_of(save(build())), cases, seconds=QUICK_S)
    assert [(one.component, one.variant, one.case, one.sizes) for one in measured] == [
        ("model", "base", "plain", {"batch": 2, "sequence": 3}),
        ("model", "base", "padded", {"batch": 2, "sequence": 5}),
    ]
    for one in measured:
        assert 0 < one.min_ms <= one.p50_ms <= one.p90_ms
        assert LEAST_RUNS <= one.runs <= MOST_RUNS
        assert one.threads == 1, "the subject's option"


def test_however_little_time_there_is_some_runs_are_made(build, save, subject_of, cases) -> None:
    found = durations(subject_of(save(build())), cases, seconds=0.0, least_runs=7, most_runs=9)
    assert {name: len(runs) for name, runs in found.milliseconds.items()} == {"plain": 7, "padded": 7}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the threads of a process")
def test_threads_that_onnxruntime_chose_are_counted(build, save, subject_of, cases) -> None:
    path = save(build())
    counted = measure_latency(subject_of(path, session_options={}), cases, seconds=QUICK_S)[0].threads
    assert counted is not None
    assert counted >= 1
    three = {"intra_op_num_threads": "3"}
    assert measure_latency(subject_of(path, session_options=three), cases, seconds=QUICK_S)[0].threads == 3


def test_the_smallest_a_middle_one_and_the_largest() -> None:
    cases = [ones("c", 2, 8), ones("largest", 4, 64), ones("smallest", 1, 1), ones("again", 2, 8), ones("d", 2, 16)]
    assert [case.name for case in different_sizes(cases)] == ["smallest", "d", "largest"]
    assert [case.name for case in different_sizes(cases[:2])] == ["c", "largest"]
    assert [case.name for case in different_sizes([cases[0], cases[3]])] == ["c"]


def test_a_file_that_does_not_load_is_an_error_without_its_folder(save, subject_of, build, cases, tmp_path) -> None:
    path = save(build())
    path.write_bytes(b"no protobuf")
    with pytest.raises(SessionError, match="ended with code 1") as raised:
        measure_latency(subject_of(path), cases)
    assert str(tmp_path) not in str(raised.value)


def test_cases_must_fit(save, subject_of, build) -> None:
    with pytest.raises(VerificationError, match="no case"):
        measure_latency(subject_of(save(build())), [])


def test_a_process_never_falls_back_to_another_provider(save, subject_of, build, cases) -> None:
    subject = dataclasses.replace(subject_of(save(build())), provider="NoSuchExecutionProvider")
    with pytest.raises(SessionError, match="NoSuchExecutionProvider"):
        measure_latency(subject, cases, seconds=QUICK_S)


def test_it_is_in_a_report_that_was_asked_for_it_and_changes_nothing_else(
    build, save, subject_of, cases, reference
) -> None:
    subject = subject_of(save(build()))
    report = Report.of(verify_subject(subject, reference, cases, suite="quick"), Tolerance(rtol=1e-3, atol=1e-4))
    assert "latency" not in report.to_json()
    timed = report.with_latency(measure_latency(subject, cases, seconds=QUICK_S))
    read = Report.from_json(timed.to_json())
    assert read == timed
    assert read.model_copy(update={"latency": None}) == report


@pytest.mark.parametrize("wrong", [{"p50_ms": 0.0}, {"min_ms": float("nan")}, {"runs": 0}, {"mean_ms": 1.0}])
def test_a_latency_that_cannot_be_is_refused(wrong) -> None:
    right = {"component": "model", "variant": "base", "case": "a", "sizes": {}, "runs": 5}
    right |= {"min_ms": 1.0, "p50_ms": 1.0, "p90_ms": 2.0}
    Latency.model_validate(right)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Latency.model_validate({**right, **wrong})
