"""Lower precision: every expected number was worked out by hand, and every threshold is the only one to fail once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from pydantic import ValidationError

from onnxport.verify import Case, CheckResult, Recorded, Report, Statistics, verify
from onnxport.verify.compare import Comparison, compare_output
from onnxport.verify.decisions import decisions_kept, top_kept
from onnxport.verify.errors import VerificationError
from onnxport.verify.tolerance import FLOAT32

INF, NAN = math.inf, math.nan
DEFAULTS = Statistics(min_cosine=0.9, min_argmax_agreement=0.9, min_topk_agreement=0.8, top_k=2, decisions={"y": -1})


def floats(values: object) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def compared(reference: object, candidate: object, criterion: Statistics = DEFAULTS, **options) -> Comparison:
    return compare_output("y", floats(reference), floats(candidate), criterion, **options)


@pytest.mark.parametrize(
    ("reference", "candidate", "sqnr_db", "p99_error"),
    [
        ([1, 1, 1, 1], [1, 1, 1, 1], INF, 0.0),
        ([1, 1, 1, 1], [0.5, 0.5, 0.5, 0.5], 6.0206, 0.5),  # 10 log10(4 / 1)
        ([1, 1, 1, 1], [0, 0, 0, 0], 0.0, 1.0),
        ([3, 4, 0, 0], [3, 4, 0, 5], 0.0, 2.0),  # power 25 against 25; 5 over an RMS of 2.5
        ([3, 4, 0, 0], [3.3, 4.4, 0, 0], 20.0, 0.16),
        ([1, 1, 1, 1], [11, 1, 1, 1], -13.9794, 10.0),  # 10 log10(4 / 100)
        ([0, 0], [0, 0], INF, 0.0),
        ([0, 0], [0, 1], -INF, INF),
        ([1, 1], [1, NAN], -INF, INF),
        ([1, 1], [1, INF], -INF, INF),
        ([1, NAN], [1, NAN], INF, 0.0),
    ],
)
def test_sqnr_and_the_99th_percentile(
    reference: list[float], candidate: list[float], sqnr_db: float, p99_error: float
) -> None:
    found = compared(reference, candidate)
    assert found.sqnr_db == pytest.approx(sqnr_db, abs=1e-4)
    assert found.p99_error == pytest.approx(p99_error, rel=1e-6)


def test_percentiles_of_the_error() -> None:
    reference = np.zeros((10, 100), np.float32)
    candidate = np.arange(1, 1001, dtype=np.float32).reshape(10, 100)
    assert compared(reference, candidate).abs_diff_percentiles == {50.0: 500, 90.0: 900, 99.0: 990, 99.9: 999}
    real = np.zeros((10, 1), bool)
    real[0] = True  # 1 to 100
    assert compared(reference, candidate, real=real).abs_diff_percentiles == {50.0: 50, 90.0: 90, 99.0: 99, 99.9: 100}


def test_other_criteria_and_integers_have_no_spread() -> None:
    found = compare_output("y", floats([1]), floats([1]), FLOAT32)
    assert (found.sqnr_db, found.p99_error, found.topk_agreement, dict(found.abs_diff_percentiles)) == (None,) * 3 + (
        {},
    )
    ids = compare_output("ids", np.array([1]), np.array([1]), DEFAULTS)
    assert ids.agrees
    assert ids.sqnr_db is None


@pytest.mark.parametrize(
    ("candidate", "k", "kept"),
    [
        ([9, 7, 5, 3, 1], 2, (2, 2)),
        ([7, 9, 5, 3, 1], 2, (2, 2)),  # in any order
        ([9, 5, 7, 3, 1], 2, (1, 2)),
        ([1, 3, 5, 7, 9], 2, (0, 2)),
        ([1, 3, 5, 7, 9], 3, (1, 3)),  # the middle one
        ([1, 3, 5, 7, 9], 4, (3, 4)),
        ([1, 3, 5, 7, 9], 5, (0, 0)),  # all of five: nothing to lose
        ([1, 3, 5, 7, 9], 9, (0, 0)),
        ([7, 9, 5, 3, 1], 1, (0, 1)),
    ],
)
def test_top_kept(candidate: list[float], k: int, kept: tuple[int, int]) -> None:
    reference = floats([[9, 7, 5, 3, 1]])
    assert top_kept(reference, floats([candidate]), -1, k) == kept
    assert top_kept(reference.T, floats([candidate]).T, 0, k) == kept
    if k == 1:
        assert top_kept(reference, floats([candidate]), -1, k) == decisions_kept(reference, floats([candidate]), -1)


def test_padding_cannot_be_chosen_and_is_not_counted() -> None:
    reference = floats([[9, 7, 5, 3], [9, 7, 5, 3], [9, 7, 5, 3]])
    candidate = floats([[9, 7, 5, 8], [9, 7, 5, 8], [0, 0, 5, 3]])
    real = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0]], bool)
    # The first: 8 is padding, so both are kept. The second loses one. The third has two entries: nothing to lose.
    assert top_kept(reference, candidate, -1, 2, real) == (3, 4)
    rows = np.array([[True], [False], [False]])
    assert top_kept(reference, candidate, -1, 2, rows) == (1, 2)
    assert top_kept(reference, candidate, -1, 2, np.zeros((3, 1), bool)) == (0, 0)


def test_a_tie_with_the_last_of_the_top_is_kept() -> None:
    reference = floats([[9, 5, 5, 1]])
    assert top_kept(reference, floats([[9, 1, 5, 1]]), -1, 2) == (2, 2)
    assert top_kept(reference, floats([[9, 1, 1, 5]]), -1, 2) == (1, 2)


def test_nan_keeps_nothing_and_an_axis_must_be_there() -> None:
    assert top_kept(floats([[9, 7, 5, 3, 1]]), floats([[9, 7, NAN, NAN, 1]]), -1, 2) == (0, 2)
    with pytest.raises(VerificationError, match="axis 2"):
        top_kept(floats([[1, 2]]), floats([[1, 2]]), 2, 1)


def test_the_top_of_many_rows_is_found_block_by_block() -> None:
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(7, 300, 1000)).astype(np.float32)
    candidate = reference + rng.normal(0, 0.1, reference.shape).astype(np.float32)
    sets = [np.argsort(array, axis=-1)[..., -5:].reshape(-1, 5) for array in (reference, candidate)]
    expected = sum(len(set(a) & set(b)) for a, b in zip(*sets, strict=True))
    assert top_kept(reference, candidate, -1, 5) == (expected, 7 * 300 * 5)
    assert 0.5 < expected / (7 * 300 * 5) < 0.99


# One threshold each: with it alone the candidate fails, and so it is the one that saw it.


def outcome(reference: object, candidate: object, criterion: Statistics) -> list[CheckResult]:
    cases = [Case("one", {"x": floats([0])})]
    recorded = [Recorded(name, {"one": {"y": floats(values)}}) for name, values in (("a", reference), ("b", candidate))]
    report: Report = verify(recorded[0], recorded[1], cases, criterion)
    return [check for check in report.checks if check.id == "outputs.match"]


def failures(checks: Sequence[CheckResult]) -> list[str]:
    return [check.detail for check in checks if check.verdict == "fail"]


ONES = [[1.0] * 200]
A_FEW_FAR_OFF = [[4.0] * 3 + [1.0] * 197]  # cosine 0.944, RMS error sqrt(27 / 200) = 0.367
ONE_ROW_TURNED = [[1.0] * 10] * 19 + [[-1.0] + [1.0] * 9]  # cosine 0.8 in one of twenty rows
RANKED = [[9.0, 7.0, 5.0, 4.8, 4.6, 4.4]] * 2
FIRST_LOST = [[7.0, 9.0, 5.0, 4.8, 4.6, 4.4]] * 2  # of two decisions none is kept, of the top three all
NEXT_LOST = [[9.0, 4.5, 4.7, 7.0, 6.8, 4.6]] * 2  # both decisions are kept, of the top three one


@pytest.mark.parametrize(
    ("reference", "candidate", "threshold", "loose", "strict", "told"),
    [
        ([[1.0] * 10] * 20, ONE_ROW_TURNED, "min_cosine", 0.75, 0.9, "cosine 0.8 in row [19]"),
        (ONES, [[1.45] * 200], "max_rms_error", 0.46, 0.44, "RMS error 0.45 of the reference, allowed 0.44"),
        (ONES, [[0.75] * 200], "min_sqnr_db", 12.0, 12.1, "SQNR 12.04 dB, wanted at least 12.1 dB"),
        (
            ONES,
            A_FEW_FAR_OFF,
            "max_p99_error",
            3.0,
            1.5,
            "one difference in a hundred is at least 3 of the reference's",
        ),
        (RANKED, FIRST_LOST, "min_argmax_agreement", 0.0, 0.5, "0 of 2 decisions kept"),
        (RANKED, NEXT_LOST, "min_topk_agreement", 1 / 3, 0.5, "2 of the 6 entries in a top 3 kept"),
    ],
)
def test_each_threshold_alone(
    reference: object, candidate: object, threshold: str, loose: float, strict: float, told: str
) -> None:
    others = {
        "min_cosine": 0.75,
        "max_rms_error": 0.5,
        "min_sqnr_db": 6.0,
        "max_p99_error": 3.0,
        "min_argmax_agreement": 0.0,
        "top_k": 3,
        "min_topk_agreement": 0.0,
        "decisions": {"y": -1},
    }
    assert not failures(outcome(reference, candidate, Statistics.model_validate({**others, threshold: loose})))
    (detail,) = failures(outcome(reference, candidate, Statistics.model_validate({**others, threshold: strict})))
    assert told in detail
    assert ";" not in detail or threshold in ("min_argmax_agreement", "min_topk_agreement"), "no other one failed"


def test_the_report_has_the_numbers_and_what_was_allowed() -> None:
    checks = outcome(RANKED, NEXT_LOST, DEFAULTS)
    by_case, pooled = sorted(checks, key=lambda check: check.case is None)
    assert by_case.sqnr_db is not None
    assert (by_case.p50_abs_diff, by_case.p90_abs_diff, by_case.p99_9_abs_diff) == (0.3, 2.5, 2.5)
    assert by_case.p99_abs_diff == 2.5
    assert by_case.p99_error == pytest.approx(2.5 / math.sqrt(np.square(RANKED).mean()), rel=1e-5)
    assert (by_case.min_sqnr_db_allowed, by_case.max_p99_error_allowed) == (6.02, 1.5)
    assert (pooled.topk_agreement, pooled.top_k, pooled.min_topk_agreement_allowed) == (0.5, 2, 0.8)
    assert pooled.argmax_agreement == 1
    assert pooled.verdict == "fail"
    assert "wanted at least 0.8 of the top 2 (min_topk_agreement)" in pooled.detail


@pytest.mark.parametrize(
    ("given", "sqnr_db", "p99"),
    [
        ({}, 6.02, 1.5),
        ({"max_rms_error": 0.1}, 20.0, 0.3),
        ({"max_rms_error": 1}, 0.0, 3.0),
        ({"max_rms_error": 99}, -39.92, 297.0),
        ({"max_rms_error": 0.1, "min_sqnr_db": 30, "max_p99_error": 0.2}, 30.0, 0.2),
    ],
)
def test_what_is_not_given_follows_from_the_rms_error(given: dict[str, float], sqnr_db: float, p99: float) -> None:
    found = Statistics.model_validate({"min_cosine": 0.9, **given})
    assert (found.min_sqnr_db, found.max_p99_error) == (sqnr_db, p99)
    assert Statistics.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_rms_error": 0},
        {"max_rms_error": INF},
        {"max_rms_error": "much"},
        {"max_p99_error": 0},
        {"min_sqnr_db": NAN},
        {"top_k": 0},
        {"min_topk_agreement": 1.5},
        {"min_top5": 0.5},
    ],
)
def test_thresholds_that_make_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Statistics.model_validate({"min_cosine": 0.9, **wrong})


def test_rms_error_and_sqnr_do_not_disagree_at_the_edge() -> None:
    for rms in np.linspace(0.01, 2.0, 400):
        wanted = Statistics(min_cosine=-1, max_rms_error=float(rms))
        assert -20 * math.log10(rms) >= wanted.min_sqnr_db > -20 * math.log10(rms * 1.002)
