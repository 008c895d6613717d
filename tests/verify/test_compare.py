"""Every expected number here was worked out by hand."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from onnxport.verify import ElementTolerance, Statistics, Tolerance
from onnxport.verify.compare import Comparison, compare, compare_output
from onnxport.verify.decisions import decisions_kept
from onnxport.verify.errors import VerificationError

INF, NAN = math.inf, math.nan
QUARTER = Tolerance(rtol=0.25, atol=0.5)  # at 2: 1.0 allowed; at 0: 0.5; exact in binary


def compared(reference: object, candidate: object, criterion=QUARTER, **options) -> Comparison:
    return compare_output("y", np.asarray(reference), np.asarray(candidate), criterion, **options)


def floats(values: list[float]) -> np.ndarray:
    return np.array(values, dtype=np.float32)


@pytest.mark.parametrize(
    ("reference", "candidate", "agrees", "max_abs", "max_rel", "ratio"),
    [
        ([2.0], [3.0], True, 1.0, 0.5, 1.0),  # on the boundary
        ([2.0], [3.0000002], False, 1.0000002, 0.5000001, 1.0000002),
        ([2.0], [1.0], True, 1.0, 0.5, 1.0),
        ([-2.0], [-3.0], True, 1.0, 0.5, 1.0),
        ([-2.0], [2.0], False, 4.0, 2.0, 4.0),
        ([0.0], [0.5], True, 0.5, 0.0, 1.0),  # no relative difference to zero
        ([0.0], [0.75], False, 0.75, 0.0, 1.5),
        ([4.0, 8.0], [4.0, 8.0], True, 0.0, 0.0, 0.0),
        ([4.0, 8.0], [4.75, 9.0], True, 1.0, 0.1875, 0.5),  # 0.75 of 1.5, 1.0 of 2.5
        ([100.0, 0.0], [110.0, 2.0], False, 10.0, 0.1, 4.0),  # the small one is the worse one
        ([NAN], [NAN], True, 0.0, 0.0, 0.0),
        ([INF, -INF], [INF, -INF], True, 0.0, 0.0, 0.0),
        ([1.0], [NAN], False, INF, INF, INF),
        ([1.0], [INF], False, INF, INF, INF),
        ([NAN], [1.0], False, INF, INF, INF),
        ([INF], [1.0], False, INF, INF, INF),
        ([INF], [-INF], False, INF, INF, INF),
        ([INF], [NAN], False, INF, INF, INF),
        ([1.0, 1.0], [1.0, NAN], False, INF, INF, INF),
    ],
)
def test_numbers(reference, candidate, agrees, max_abs, max_rel, ratio) -> None:
    found = compared(floats(reference), floats(candidate))
    assert found.agrees is agrees
    assert found.max_abs_diff == pytest.approx(max_abs, rel=1e-6)
    assert found.max_rel_diff == pytest.approx(max_rel, rel=1e-6)
    assert found.worst_ratio == pytest.approx(ratio, rel=1e-6)
    assert found.compared == len(reference)


def test_nothing_is_allowed_with_zero_tolerances() -> None:
    zero = Tolerance(rtol=0, atol=0)
    assert compared(floats([1.5, 0]), floats([1.5, 0]), zero).agrees
    found = compared(floats([1.5]), np.nextafter(floats([1.5]), np.float32(2)), zero)
    assert not found.agrees
    assert found.worst_ratio == INF


def test_reference_size_and_cosine() -> None:
    found = compared(floats([[3, 4], [0, 0]]), floats([[4, 3], [0, 0]]))
    assert found.reference_rms == pytest.approx(2.5)  # sqrt(25 / 4)
    assert found.reference_max_abs == 4
    assert found.min_cosine == pytest.approx(24 / 25)
    assert found.rms_error == pytest.approx(math.sqrt(2 / 25))


def test_the_worst_element_is_named() -> None:
    reference = np.zeros((2, 3, 4), dtype=np.float32)
    candidate = reference.copy()
    candidate[1, 0, 2] = 8
    candidate[0, 2, 1] = 1
    found = compared(reference, candidate)
    assert found.worst_index == (1, 0, 2)
    assert found.detail == (
        "2 of 24 elements are outside the tolerance; worst at [1, 0, 2]: 8, expected 0 within 0.5 "
        "(16 times the allowed difference)"
    )


def test_scalars() -> None:
    assert compared(np.float32(2), np.float32(3)).agrees
    found = compared(np.float32(2), np.float32(4))
    assert not found.agrees
    assert found.worst_index == ()


@pytest.mark.parametrize(
    ("reference", "candidate", "detail"),
    [
        (np.ones((2, 3), np.float32), np.ones((1, 3), np.float32), "shape [1, 3], expected [2, 3]"),
        (np.ones((2, 3), np.float32), np.ones((3,), np.float32), "shape [3], expected [2, 3]"),
        (np.ones((2, 3), np.float32), np.ones((2, 3, 1), np.float32), "shape [2, 3, 1], expected [2, 3]"),
        (np.ones(3, np.float32), np.float32(1), "shape [], expected [3]"),
        (np.ones(2, np.float32), np.ones(2, np.float64), "dtype float64, expected float32"),
        (np.ones(2, np.int64), np.ones(2, np.int32), "dtype int32, expected int64"),
        (np.ones(2, np.float32), np.ones(2, np.int64), "dtype int64, expected float32"),
        (np.ones((0, 3), np.float32), np.ones((0, 3), np.float32), "nothing to compare: it is empty"),
        (np.array(["a"]), np.array(["a"]), "<U1 cannot be compared; outputs must be numbers"),
    ],
)
def test_what_is_not_the_same_tensor_fails(reference, candidate, detail) -> None:
    found = compared(reference, candidate)
    assert not found.agrees
    assert found.detail == detail


def test_what_is_no_array_fails() -> None:
    assert compare_output("y", floats([1]), [1.0], QUARTER).detail == "a list, expected an array"


def test_the_contract_may_ask_for_another_precision_but_not_for_another_kind() -> None:
    half = np.ones(2, np.float16)
    assert compared(floats([1, 1]), half, dtype="float16").agrees
    assert not compared(floats([1, 1]), floats([1, 1]), dtype="float16").agrees
    assert not compared(floats([1, 1]), np.ones(2, np.int64), dtype="int64").agrees


@pytest.mark.parametrize("criterion", [Tolerance(rtol=0.5, atol=10), Statistics(min_cosine=-1, max_rms_error=99)])
def test_integers_must_be_equal(criterion) -> None:
    assert compared(np.array([100, 200]), np.array([100, 200]), criterion).agrees
    assert not compared(np.array([100, 200]), np.array([100, 201]), criterion).agrees
    assert not compared(np.array([True, False]), np.array([True, True]), criterion).agrees
    big = np.array([2**60])
    assert not compared(big, big + 1, criterion).agrees  # the same number in float64


def test_tolerances_per_output() -> None:
    tolerance = Tolerance(rtol=0, atol=0.1, per_output={"loose": ElementTolerance(rtol=0, atol=1)})
    reference = {"tight": floats([0]), "loose": floats([0])}
    tight, loose = compare(reference, {"tight": floats([0.5]), "loose": floats([0.5])}, tolerance)
    assert not tight.agrees
    assert loose.agrees
    assert loose.tolerance == ElementTolerance(rtol=0, atol=1)


def test_missing_and_extra_outputs_fail() -> None:
    missing, extra = compare({"a": floats([1])}, {"b": floats([1])}, QUARTER)
    assert (missing.output, missing.agrees) == ("a", False)
    assert missing.detail == "the candidate has no output a; it has b"
    assert missing.reference_rms == 1
    assert (extra.output, extra.agrees) == ("b", False)
    assert extra.detail == "the reference has no output b; it has a"


MASK = np.array([[True, True, False], [True, False, False]])[..., None]


def test_a_difference_in_the_padding_alone_passes_with_its_own_number() -> None:
    reference = np.ones((2, 3, 2), np.float32)
    candidate = reference + np.where(MASK, 0, 7).astype(np.float32)
    found = compared(reference, candidate, real=MASK)
    assert found.agrees
    assert found.compared == 6
    assert found.max_abs_diff == 0
    assert found.padded_max_abs_diff == 7
    assert not compared(reference, candidate).agrees


@pytest.mark.parametrize("padding", [NAN, INF, 1e30])
def test_padding_neither_hides_nor_fakes_a_difference(padding) -> None:
    reference = np.ones((2, 3, 2), np.float32)
    candidate = reference.copy()
    candidate[1, 2] = padding
    assert compared(reference, candidate, real=MASK).agrees
    assert compared(candidate, reference, real=MASK).agrees
    candidate[1, 0, 1] = 3  # one real token among the padding
    found = compared(reference, candidate, real=MASK)
    assert not found.agrees
    assert found.worst_index == (1, 0, 1)
    assert found.max_abs_diff == 2
    assert found.reference_rms == 1
    assert found.unexpected_nonfinite == 0


def test_an_output_that_is_all_padding_compares_nothing() -> None:
    found = compared(np.ones((1, 2, 2), np.float32), np.ones((1, 2, 2), np.float32), real=np.zeros((1, 2, 1), bool))
    assert not found.agrees
    assert found.detail == "nothing to compare: every position of it is padding"


def test_no_padding_no_number() -> None:
    assert compared(floats([1]), floats([1])).padded_max_abs_diff is None
    assert compared(np.ones((2, 3, 1), np.float32), np.ones((2, 3, 1), np.float32), real=MASK).padded_max_abs_diff == 0


def test_a_mask_along_the_last_axis() -> None:
    real = MASK[..., 0]
    reference = floats([[1, 2, 9], [3, 9, 9]])
    assert compared(reference, np.where(real, reference, 0).astype(np.float32), real=real).agrees
    found = compared(reference, floats([[1, 2, 9], [30, 9, 9]]), real=real)
    assert found.worst_index == (1, 0)
    assert found.compared == 3


def test_blocks_do_not_change_the_numbers() -> None:
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(5, 41, 997)).astype(np.float32)  # several blocks, none of them full
    candidate = reference + rng.normal(0, 0.01, reference.shape).astype(np.float32)
    candidate[3, 40, 996] += 5
    real = np.ones((5, 41, 1), bool)
    real[0, 7] = False
    found = compared(reference, candidate, real=real)
    assert found.worst_index == (3, 40, 996)
    diff = np.abs(candidate.astype(np.float64) - reference)
    assert found.padded_max_abs_diff == pytest.approx(diff[0, 7].max())
    rows = np.broadcast_to(real[..., 0], (5, 41))
    a, b = candidate[rows].astype(np.float64), reference[rows].astype(np.float64)
    cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    assert found.min_cosine == pytest.approx(cosine.min(), rel=1e-9)
    assert found.reference_rms == pytest.approx(math.sqrt((b**2).mean()), rel=1e-9)
    assert found.compared == b.size


def test_memory_stays_far_below_the_output() -> None:
    reference = np.ones((64, 65536), np.float32)
    tracemalloc.start()
    compared(reference, reference)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < reference.nbytes / 2


LOOSE = Statistics(min_cosine=0.9)


def test_statistics_accept_noise_and_refuse_garbage() -> None:
    rng = np.random.default_rng(1)
    reference = rng.normal(size=(4, 64)).astype(np.float32)
    noisy = reference + rng.normal(0, 0.1, reference.shape).astype(np.float32)
    assert compared(reference, noisy, LOOSE).agrees
    garbage = compared(reference, np.ascontiguousarray(reference[::-1]), LOOSE)
    assert not garbage.agrees
    assert "wanted at least 0.9" in garbage.detail


def test_statistics_look_at_the_worst_row() -> None:
    reference = np.ones((2, 3, 4), np.float32)
    candidate = reference.copy()
    candidate[1, 2] = [1, -1, 1, -1]
    found = compared(reference, candidate, LOOSE)
    assert not found.agrees
    assert found.min_cosine == 0
    assert "in row [1, 2]" in found.detail
    assert compared(reference, candidate, LOOSE, real=MASK).agrees  # that row is padding


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_statistics_see_a_wrong_scale(factor) -> None:
    reference = np.ones((2, 4), np.float32)
    found = compared(reference, reference * np.float32(factor), LOOSE)
    assert found.min_cosine == pytest.approx(1)
    assert found.rms_error == pytest.approx(abs(factor - 1))
    assert not found.agrees


@pytest.mark.parametrize("value", [NAN, INF])
def test_statistics_do_not_average_nan_away(value) -> None:
    reference = np.ones((2, 1000), np.float32)
    candidate = reference.copy()
    candidate[0, 0] = value
    found = compared(reference, candidate, LOOSE)
    assert not found.agrees
    assert found.unexpected_nonfinite == 1


def test_one_column_is_one_row() -> None:
    reference, candidate = floats([[3], [4], [0.1]]), floats([[3], [4], [-0.1]])  # one sign flips, next to nothing
    found = compared(reference, candidate, LOOSE)
    assert found.agrees
    assert found.min_cosine == pytest.approx(24.99 / 25.01)
    real = np.array([[True], [False], [True]])
    assert compared(reference, candidate, LOOSE, real=real).min_cosine == pytest.approx(8.99 / 9.01)
    assert not compared(reference, -reference, LOOSE).agrees


def test_tiny_values_keep_their_direction() -> None:
    reference = np.array([[3e-200, 4e-200]])
    assert compared(reference, reference, LOOSE).min_cosine == pytest.approx(1)
    assert compared(reference, reference[:, ::-1].copy(), LOOSE).min_cosine == pytest.approx(24 / 25)


@pytest.mark.parametrize(
    ("axis", "real", "kept"),
    [
        (-1, None, (1, 2)),
        (1, None, (1, 2)),
        (0, None, (3, 3)),
        (-1, [[True, True, False], [True, True, True]], (2, 2)),  # the third of the first row cannot be chosen
        (-1, [[True, True, True], [False, False, False]], (0, 1)),
        (-1, [[False, False, False], [True, True, True]], (1, 1)),
        (-1, [[False] * 3] * 2, (0, 0)),
    ],
)
def test_decisions_kept(axis, real, kept) -> None:
    reference = floats([[1, 5, 3], [9, 4, 2]])
    candidate = floats([[1, 5, 6], [9, 4, 2]])
    positions = None if real is None else np.array(real)
    assert decisions_kept(reference, candidate, axis, positions) == kept


def test_a_tie_is_no_lost_decision() -> None:
    assert decisions_kept(floats([[2, 2, 1]]), floats([[1, 2, 1]]), -1) == (1, 1)
    assert decisions_kept(floats([[2, 2, 1]]), floats([[1, 1, 2]]), -1) == (0, 1)


def test_the_decisions_of_one_case_are_counted_and_not_judged() -> None:
    criterion = Statistics(min_cosine=-1, max_rms_error=99, min_argmax_agreement=0.75, decisions={"y": -1})
    found = compared(floats([[1, 5, 3], [9, 4, 2]]), floats([[1, 5, 6], [9, 4, 2]]), criterion)
    assert found.agrees
    assert (found.argmax_agreement, found.decisions) == (0.5, 2)


def test_decisions_at_padded_positions_do_not_count() -> None:
    criterion = Statistics(min_cosine=-1, max_rms_error=99, min_argmax_agreement=1, decisions={"y": -1})
    reference = np.tile(floats([1, 2]), (2, 3, 1))
    candidate = np.where(MASK, reference, reference[..., ::-1])
    assert compared(reference, candidate, criterion, real=MASK).argmax_agreement == 1
    assert compared(reference, candidate, criterion).argmax_agreement == 0.5


def test_a_decision_along_an_axis_that_is_not_there() -> None:
    with pytest.raises(VerificationError, match="axis 2"):
        compared(floats([[1, 2]]), floats([[1, 2]]), Statistics(min_cosine=0, decisions={"y": 2}))
