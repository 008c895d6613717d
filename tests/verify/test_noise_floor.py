from __future__ import annotations

import math

import numpy as np
import pytest

from onnxport.verify import Case, ElementTolerance, Recorded, Report, Statistics, Tolerance, verify
from onnxport.verify.noise_floor import looseness, measure_noise
from onnxport.verify.reports.outline import loose

EXACT = np.array([[1.0, -2.0, 3.0], [0.5, 0.25, 8.0]])
# Powers of two: float32 holds every sum exactly, and the floor is known to the last bit.
FLOOR, ERROR = 2.0**-17, 2.0**-15
OFF = np.array([[0.0, FLOOR, 0.0], [-FLOOR / 2, 0.0, 0.0]])


def report(tolerance: Tolerance | Statistics, *, precise: bool = True, candidate_off: float = ERROR) -> Report:
    reference = Recorded(
        "reference",
        {"one": {"y": (EXACT + OFF).astype(np.float32)}},
        {"one": {"y": EXACT}} if precise else {},
    )
    off = np.zeros_like(EXACT)
    off[1, 1] = candidate_off
    candidate = Recorded("candidate", {"one": {"y": (EXACT + off).astype(np.float32)}})
    return verify(reference, candidate, [Case("one", {"x": np.zeros(1, np.float32)})], tolerance)


def match(found: Report):
    (result,) = [check for check in found.checks if check.id == "outputs.match"]
    return result


def test_both_are_measured_against_float64() -> None:
    result = match(report(Tolerance(rtol=0, atol=1e-4)))
    assert (result.noise_floor, result.floor_ratio) == (pytest.approx(FLOOR, rel=1e-5), ERROR / FLOOR)
    assert match(report(Tolerance(rtol=0, atol=1e-4), candidate_off=0.0)).floor_ratio == 0.0


def test_a_loose_tolerance_is_said_to_be_loose_and_fails_nothing() -> None:
    loose_report = report(Tolerance(rtol=0, atol=1001 * FLOOR))
    assert match(loose_report).verdict == "pass"
    assert match(loose_report).detail.endswith("; note: the tolerance is loose, 1e+03 times the noise floor")
    assert loose(loose_report) == ["loose in candidate: up to 1e+03 times the noise floor"]


def test_rtol_counts_at_the_rms_of_the_reference() -> None:
    rms = float(np.sqrt(np.mean(np.square(EXACT))))
    for times, expected in ((999, False), (1001, True)):
        assert ("note" in match(report(Tolerance(rtol=times * FLOOR / rms, atol=0))).detail) is expected


def test_a_tight_tolerance_is_not() -> None:
    tight = report(Tolerance(rtol=0, atol=999 * FLOOR))
    assert "note" not in match(tight).detail
    assert not loose(tight)


def test_a_failure_is_measured_too() -> None:
    result = match(report(Tolerance(rtol=0, atol=FLOOR), candidate_off=0.5))
    assert (result.verdict, result.floor_ratio) == ("fail", 0.5 / FLOOR)


def test_without_float64_there_is_no_floor_and_statistics_have_no_tolerance_to_be_loose() -> None:
    assert match(report(Tolerance(rtol=0, atol=1), precise=False)).noise_floor is None
    result = match(report(Statistics(min_cosine=0.9)))
    assert result.floor_ratio == ERROR / FLOOR
    assert "note" not in result.detail


def test_a_floor_of_zero() -> None:
    assert looseness(ElementTolerance(rtol=0, atol=1e-9), 1.0, 0.0) == math.inf
    assert looseness(ElementTolerance(rtol=0, atol=0), 1.0, 0.0) is None
    reference = EXACT.astype(np.float32)
    noise = measure_noise(reference, reference + np.float32(1), EXACT)
    assert noise is not None
    assert (noise.floor, noise.ratio) == (0.0, math.inf)


def test_padding_and_what_is_not_finite_do_not_count() -> None:
    reference = (EXACT + OFF).astype(np.float32)
    reference[0, 0], reference[1, 2] = np.nan, 99
    real = np.array([[True, True, True], [True, True, False]])
    noise = measure_noise(reference, reference, EXACT, real)
    assert noise is not None
    assert (noise.floor, noise.error) == (FLOOR, FLOOR)
    assert measure_noise(reference, reference, EXACT, np.zeros_like(real)) is None
    assert measure_noise(reference, reference[:1], EXACT) is None
    integers = np.ones((2, 3), dtype=np.int64)
    assert measure_noise(integers, integers, integers) is None
