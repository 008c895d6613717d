from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from onnxport.verify import CheckResult, ElementTolerance, Report, Statistics, Tolerance
from onnxport.verify.reports.outline import (
    allowance_used,
    allowed,
    failures,
    flattened,
    numbers,
    problem,
    reasons,
    sections,
    worst,
)

Check = Callable[..., CheckResult]


def test_sections_in_reading_order(check: Check) -> None:
    checks = [check(variant=variant) for variant in ("ort", "optimized", "int8", "base")]
    report = Report.of([*checks, check("files.sha256", component=None, variant=None)], Tolerance(rtol=0, atol=0))
    assert [section.title for section in sections(report)] == ["bundle", "base", "optimized", "int8", "ort"]


def test_several_components_are_named(check: Check) -> None:
    report = Report.of([check(component=name) for name in ("encoder", "decoder")], Tolerance(rtol=0, atol=0))
    assert [section.title for section in sections(report)] == ["decoder / base", "encoder / base"]


def test_a_check_of_a_component_without_a_variant_has_a_section(check: Check) -> None:
    report = Report.of([check(variant=None), check(component=None)], Tolerance(rtol=0, atol=0))
    assert [section.title for section in sections(report)] == ["base", "model"]


@pytest.mark.parametrize(
    ("fields", "used"),
    [
        ({}, None),
        ({"worst_ratio": 0.25, "min_cosine": 0.5, "min_cosine_allowed": 0.9}, 0.25),
        ({"min_cosine": 0.95, "min_cosine_allowed": 0.9}, 0.5),
        ({"rms_error": 0.1, "max_rms_error_allowed": 0.5, "min_cosine": 0.99, "min_cosine_allowed": 0.9}, 0.2),
        ({"argmax_agreement": 0.8, "min_argmax_agreement_allowed": 0.9}, 2.0),
        ({"argmax_agreement": 1.0, "min_argmax_agreement_allowed": 1.0}, 0.0),
        ({"argmax_agreement": 0.9, "min_argmax_agreement_allowed": 1.0}, math.inf),
        ({"sqnr_db": 26.0, "min_sqnr_db_allowed": 6.0}, 0.1),  # 20 dB better: a tenth of the amplitude
        ({"sqnr_db": 0.0, "min_sqnr_db_allowed": 20.0}, 10.0),
        ({"sqnr_db": math.inf, "min_sqnr_db_allowed": 6.0}, 0.0),
        ({"sqnr_db": math.nan, "min_sqnr_db_allowed": 6.0}, math.inf),
        ({"p99_error": 3.0, "max_p99_error_allowed": 1.5, "rms_error": 0.1, "max_rms_error_allowed": 0.5}, 2.0),
        ({"topk_agreement": 0.6, "min_topk_agreement_allowed": 0.8}, 2.0),
        ({"min_cosine": math.nan, "min_cosine_allowed": 0.9}, math.inf),
        # What one case keeps is judged with all others: it passes, and its ratio is that of its values.
        (
            {"min_cosine": 0.95, "min_cosine_allowed": 0.9, "argmax_agreement": 0, "min_argmax_agreement_allowed": 0.9},
            0.5,
        ),
        (
            {"min_cosine": 0.95, "min_cosine_allowed": 0.9, "topk_agreement": 0, "min_topk_agreement_allowed": 0.8},
            0.5,
        ),
        ({"worst_ratio": math.nan}, math.inf),
        ({"rms_error": 0.1}, None),
    ],
)
def test_allowance_used(fields: dict[str, float], used: float | None, check: Check) -> None:
    found = allowance_used(check(**fields))
    assert found == (used if used is None else pytest.approx(used))


def test_the_worst_failure_comes_first_and_one_without_numbers_is_the_worst(check: Check) -> None:
    failed = [check(verdict="fail", case=str(ratio), worst_ratio=ratio) for ratio in (2.0, math.nan, 30.0)]
    failed.append(check(verdict="fail", case="no outputs"))
    report = Report.of([*failed, check(case="good", worst_ratio=0.1)], Tolerance(rtol=0, atol=0))
    (kind,) = failures(sections(report))
    assert [c.case for c in kind.checks] in (["nan", "no outputs", "30.0", "2.0"], ["no outputs", "nan", "30.0", "2.0"])
    assert (kind.id, kind.put) == ("outputs.match", 5)
    assert worst(failed) == math.inf, "NaN does not hide behind a number"
    assert worst([]) is None


def test_equal_reasons_are_one(check: Check) -> None:
    why = "it was not measured: export with --suite full"
    skipped = [check("rows.independent", "skip", detail=f"rows.{what}: {why}") for what in ("alone", "reordered")]
    skipped += [check("padding.invariant", "skip", detail=f"padding.left: {why}")]
    skipped += [
        check("fusion.expected", "skip", detail="none is required"),
        check("id", "skip", detail="x: a single one"),
    ]
    assert reasons(skipped) == {
        why: ["rows.independent (rows.alone, rows.reordered)", "padding.invariant (padding.left)"],
        "none is required": ["fusion.expected"],
        "x: a single one": ["id"],
    }


def test_problem(check: Check) -> None:
    tolerance = Tolerance(rtol=0, atol=0)
    assert problem(Report.of([check(compared=1)], tolerance)) is None
    assert problem(Report.of([check(verdict="fail")], tolerance)) is None
    told = problem(Report.of([check("graph.axes")], tolerance))
    assert told == "no check compared any values, and that proves nothing"
    silent = Report.of([check("graph.axes")], tolerance).model_copy(update={"detail": None})
    assert problem(silent) == "the verdict is fail, and no check says why"


def test_numbers_are_all_that_a_check_carries(check: Check) -> None:
    names = set(CheckResult.model_fields) - {"id", "component", "variant", "case", "output", "verdict", "detail"}
    assert numbers(check(compared=3, rtol=0.0)) == {"compared": 3, "rtol": 0.0}
    assert set(numbers(check(**dict.fromkeys(names, 1)))) == names


def test_the_criterion_is_told_in_full(check: Check) -> None:
    tolerance = Tolerance(rtol=1e-3, atol=1e-4, per_output={"b": ElementTolerance(rtol=1.23456e-3, atol=0)})
    told = ["allowed: |difference| <= 0.0001 + 0.001 * |reference|, other values for b"]
    assert allowed(Report.of([], tolerance)) == told
    checks = [check(output="a", rtol=1e-3, atol=1e-4), check(output="b", rtol=1.23456e-3, atol=0)]
    assert allowed(Report.of(checks, tolerance)) == told
    assert flattened(tolerance)["per_output.b.rtol"] == "0.00123456"
    statistics = Statistics(min_cosine=0.9, max_rms_error=0.25, min_argmax_agreement=0.8, decisions={"logits": -1})
    assert allowed(Report.of([], statistics)) == [
        "allowed: cosine >= 0.9, RMS error <= 0.25, SQNR >= 12.04 dB, p99 error <= 0.75, decisions kept >= 0.8"
    ]
    assert flattened(statistics)["decisions.logits"] == "-1"


def test_every_criterion_in_use_is_told_with_its_variants(check: Check) -> None:
    statistics = {"min_cosine_allowed": 0.9, "max_rms_error_allowed": 0.5, "min_argmax_agreement_allowed": 0.0}
    further = {"min_sqnr_db_allowed": 6.02, "max_p99_error_allowed": 1.5, "top_k": 3, "min_topk_agreement_allowed": 0.8}
    checks = [
        check(variant="int4", **statistics, **further),
        check(variant="int8", **statistics),
        check(variant="fp16", rtol=1e-2, atol=5e-3),
        check(variant="optimized", rtol=1e-3, atol=1e-4),
        check(variant="base", rtol=1e-3, atol=1e-4),
        check("rows.independent", variant="base", rtol=7.0, atol=7.0),
    ]
    assert allowed(Report.of(checks, Tolerance(rtol=1e-3, atol=1e-4))) == [
        "allowed in base, optimized: |difference| <= 0.0001 + 0.001 * |reference|",
        "allowed in fp16: |difference| <= 0.005 + 0.01 * |reference|",
        "allowed in int4: cosine >= 0.9, RMS error <= 0.5, SQNR >= 6.02 dB, p99 error <= 1.5, top 3 kept >= 0.8",
        "allowed in int8: cosine >= 0.9, RMS error <= 0.5",  # written before there were more thresholds
    ]
    assert allowed(Report.of(checks[1:2], Tolerance(rtol=1e-3, atol=1e-4))) == [
        "allowed: cosine >= 0.9, RMS error <= 0.5"
    ], "what nothing was judged by is not told"
