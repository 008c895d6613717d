from __future__ import annotations

import math
from collections.abc import Callable

from onnxport.verify import CheckResult, Report, Tolerance
from onnxport.verify.reports import render
from onnxport.verify.reports.outline import sections
from onnxport.verify.reports.tables import tables

Check = Callable[..., CheckResult]


def report(check: Check, hostile: str = "reviews.csv") -> Report:
    judged = {"variant": "int8", "min_cosine_allowed": 0.9, "compared": 1}
    checks = [
        check(case="a", min_cosine=0.95, rms_error=0.1, sqnr_db=20, p99_abs_diff=0.5, p99_error=0.25, **judged),
        check(case="b", min_cosine=0.97, rms_error=0.2, sqnr_db=13.98, p99_abs_diff=0.25, argmax_agreement=0, **judged),
        check(case="c", min_cosine=0.99, topk_agreement=0, **judged),
        check(output="logits", argmax_agreement=0.9375, topk_agreement=0.8125, **judged),
        check(variant="base", case="a", worst_ratio=0.1, min_cosine=1.0, rms_error=1e-6, compared=1),
        check(
            "metric.kept",
            variant="int8",
            case=hostile,
            output="accuracy",
            reference_score=0.9,
            score=0.875,
            score_loss=0.025,
            score_loss_low=-0.0125,
            score_loss_high=0.0625,
            max_score_loss_allowed=0.03,
        ),
        check("metric.kept", "skip", variant="base", case="reviews.csv"),
    ]
    return Report.of(checks, Tolerance(rtol=1e-3, atol=1e-4))


def test_the_worst_of_all_cases_and_the_scores(check: Check) -> None:
    scores, statistics = tables(sections(report(check)))
    assert scores.rows == (("int8", "reviews.csv", "accuracy", "0.875", "0.9", "0.025", "-0.0125 to 0.0625", "0.03"),)
    assert statistics.head == ("number", "int8")
    assert statistics.rows[0] == ("verdict", "pass")
    assert dict(statistics.rows[1:]) == {
        "worst cosine": "0.95",
        "RMS error": "0.2",
        "SQNR, dB": "13.98",
        "p99": "0.5",
        "p99 / RMS": "0.25",
        "decisions kept": "0.9375",
        "top k kept": "0.8125",
    }


def test_nan_is_the_worst(check: Check) -> None:
    checks = [check(variant="int8", min_cosine_allowed=0.9, min_cosine=value) for value in (math.nan, 0.99)]
    (table,) = tables(sections(Report.of(checks, Tolerance(rtol=0, atol=0))))
    assert table.rows[1][1].lower() == "nan"


def test_nothing_measured_has_no_table(check: Check) -> None:
    assert tables(sections(Report.of([check(worst_ratio=0.5, compared=1)], Tolerance(rtol=0, atol=0)))) == []


def test_reports_show_them_and_escape_names(check: Check) -> None:
    made = report(check, hostile="<script>|`x`.csv")
    markdown, html, junit = (render(made, suffix) for suffix in (".md", ".html", ".xml"))
    for text in (markdown, html):
        assert "Task metrics" in text
        assert "Lower precision: the worst of all cases" in text
        assert "-0.0125 to 0.0625" in text
    assert "<script>" not in html
    assert "| int8 | \\<script\\>\\|\\`x\\`.csv |" in markdown
    assert "score_loss_high = 0.0625" in junit
    assert "sqnr_db = 13.98" in junit
