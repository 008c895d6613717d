"""The verdict table: columns, worst verdicts, failures worst first, reasons."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from onnxport.exporters.cli.console import Console
from onnxport.exporters.cli.verdict import show_report
from onnxport.verify import Case, Recorded, verify
from onnxport.verify.report import CheckResult, Latency, Report
from onnxport.verify.reports.html_page import to_html
from onnxport.verify.tolerance import FLOAT32, Statistics, Tolerance


def check(
    id: str, verdict: str, variant: str | None = "base", component: str | None = "model", **more: object
) -> CheckResult:
    fields = {"detail": "as it should be", "component": component, "variant": variant, **more}
    return CheckResult.model_validate({"id": id, "verdict": verdict, **fields})


def shown(capsys: pytest.CaptureFixture[str], *checks: CheckResult, tolerance: Tolerance | Statistics = FLOAT32) -> str:
    show_report(Console(), Report.of(checks, tolerance))
    return capsys.readouterr().out


def rows(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.splitlines()}


def test_variants_are_columns_in_the_order_they_are_made(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(
        capsys,
        check("outputs.match", "pass", "int8", compared=1),
        check("outputs.match", "pass", "optimized", compared=1, worst_ratio=0.5),
        check("outputs.match", "pass", "base", compared=1, worst_ratio=0.25),
        check("files.sha256", "pass", None, None),
    )
    assert rows(text)["check"] == ["bundle", "base", "optimized", "int8"]
    assert rows(text)["worst"] == ["ratio", "0.25", "0.5"]
    assert rows(text)["pass:"][:2] == ["4", "passed,"]


def test_a_family_is_as_bad_as_its_worst_check(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(
        capsys,
        check("outputs.match", "pass", compared=1, worst_ratio=0.1),
        check("outputs.finite", "fail", detail="2 NaN"),
        check("graph.axes", "skip", detail="no axes"),
        check("graph.names", "pass"),
        check("fusion.expected", "skip", detail="no fusion is required or recorded"),
    )
    assert rows(text)["outputs"] == ["fail"]
    assert rows(text)["graph"] == ["pass"]
    assert rows(text)["fusion"] == ["skip"]
    assert rows(text)["verdict"] == ["fail"]
    assert "FAIL outputs.finite model base: 2 NaN" in text
    assert "skip graph.axes: no axes" in text
    assert "no fusion" not in text, "nothing was asked, so there is nothing to say"


def test_the_worst_failures_come_first_and_the_rest_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    failed = [
        check("outputs.match", "fail", case=f"c{n}", output="logits", detail="off", worst_ratio=float(n), compared=1)
        for n in range(1, 9)
    ]
    lines = [line for line in shown(capsys, *failed).splitlines() if line.startswith("FAIL")]
    assert lines[0] == "FAIL outputs.match model base (c8, logits): off"
    assert lines[-1] == "FAIL outputs.match model base: 3 more like this; --json lists them all"
    assert len(lines) == 6


def test_an_infinite_ratio_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, check("outputs.match", "fail", compared=1, worst_ratio=float("inf")))
    assert rows(text)["worst"] == ["ratio", "inf"]


def test_every_component_has_a_table_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [
        check("outputs.match", verdict, variant, component, compared=1)
        for component, verdict in (("encoder_model", "pass"), ("decoder_model", "fail"))
        for variant in ("base", "optimized", "ort", "fp16", "int8")
    ]
    text = shown(capsys, *checks, check("files.sha256", "pass", None, None))
    assert rows(text)["encoder_model"] == ["base", "optimized", "ort", "fp16", "int8"]
    assert rows(text)["check"] == ["bundle"]
    assert "FAIL outputs.match decoder_model base" in text
    assert max(map(len, text.splitlines())) <= 80


def test_nothing_compared_is_a_failure_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no check compared any values" in shown(capsys, check("graph.names", "pass"))


@pytest.mark.parametrize(
    ("tolerance", "told"),
    [
        (Tolerance(rtol=0.01, atol=0.005), "allowed: |difference| <= 0.005 + 0.01 * |reference|"),
        (
            Statistics(min_cosine=0.9, min_argmax_agreement=0.8, top_k=3, min_topk_agreement=0.7),
            "allowed: cosine >= 0.9, RMS error <= 0.5, SQNR >= 6.02 dB, p99 error <= 1.5, decisions kept >= 0.8, "
            "top 3 kept >= 0.7",
        ),
    ],
)
def test_the_criterion_is_always_shown(
    tolerance: Tolerance | Statistics, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in shown(capsys, check("outputs.match", "pass", compared=1), tolerance=tolerance)


def test_statistics_have_rows_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    thresholds = {"min_cosine_allowed": 0.9, "max_rms_error_allowed": 0.5, "min_argmax_agreement_allowed": 0.9}
    text = shown(
        capsys,
        check("outputs.match", "pass", compared=1, rtol=1e-3, atol=1e-4, min_cosine=0.5),
        check(
            "outputs.match",
            "pass",
            "int8",
            compared=1,
            case="a",
            min_cosine=0.97,
            argmax_agreement=0.5,
            sqnr_db=20.5,
            **thresholds,
        ),
        check("outputs.match", "pass", "int8", output="y", argmax_agreement=1.0, topk_agreement=0.75, **thresholds),
        check(
            "outputs.match",
            "pass",
            "int8",
            compared=1,
            case="b",
            min_cosine=0.95,
            rms_error=0.1,
            topk_agreement=0.25,
            **thresholds,
        ),
    )
    assert rows(text)["worst"] == ["ratio", "0.5"]
    assert re.search(r"^worst cosine +0\.95 *$", text, re.MULTILINE)
    assert re.search(r"^decisions kept +1 *$", text, re.MULTILINE)
    assert re.search(r"^worst SQNR, dB +20\.5 *$", text, re.MULTILINE)
    assert re.search(r"^top k kept +0\.75 *$", text, re.MULTILINE)
    assert "allowed in base: |difference| <= 0.0001 + 0.001 * |reference|\n" in text
    assert "allowed in int8: cosine >= 0.9, RMS error <= 0.5, decisions kept >= 0.9\n" in text


def test_a_case_that_loses_decisions_does_not_look_like_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """Of ten decisions, a case each, nine are kept: that is what is allowed, and no ratio is above 1."""
    criterion = Statistics(min_cosine=0.5, max_rms_error=0.9, min_argmax_agreement=0.9, decisions={"y": -1})
    cases = [Case(f"case {number}", {"x": np.array([number])}) for number in range(10)]
    kept, lost = np.array([[3.0, 2.0]], np.float32), np.array([[2.0, 3.0]], np.float32)
    reference = Recorded("reference", {case.name: {"y": kept} for case in cases})
    candidate = Recorded("int8", {case.name: {"y": lost if case.name == "case 7" else kept} for case in cases})
    report = verify(reference, candidate, cases, criterion)
    assert report.verdict == "pass"
    show_report(Console(), report)
    told = capsys.readouterr().out
    assert re.search(r"^decisions kept +0\.9 *$", told, re.MULTILINE)
    assert re.search(r"^worst ratio +1 *$", told, re.MULTILINE)
    page = to_html(report)
    assert ' fail">' not in page
    assert "<span>all cases</span>" in page
    assert "<td>all cases, y</td>" in page


def test_latencies_have_a_table_for_each_component(capsys: pytest.CaptureFixture[str]) -> None:
    def latency(component: str, variant: str, batch: int, ms: float) -> Latency:
        numbers = {"runs": 9, "min_ms": ms / 2, "p50_ms": ms, "p90_ms": 2 * ms}
        return Latency.model_validate(
            {"component": component, "variant": variant, "case": f"c{batch}", "sizes": {"batch": batch}, **numbers}
        )

    checks = [
        check("outputs.match", "pass", variant, component, compared=1)
        for component in ("encoder_model", "decoder_model")
        for variant in ("base", "optimized")
    ]
    measured = [latency(one.component or "", one.variant or "", batch, 2.0) for one in checks for batch in (1, 4)]
    show_report(Console(), Report.of(checks, FLOAT32).with_latency(measured[:-1]))
    told = capsys.readouterr().out.splitlines()
    at = told.index(next(line for line in told if line.startswith("encoder_model, p50 / p90 ms")))
    assert [line.split("  ")[0] for line in told[at : at + 3]] == ["encoder_model, p50 / p90 ms", "batch 1", "batch 4"]
    assert told[at].split()[-2:] == ["base", "optimized"]
    assert told[at + 2].split()[2:] == ["2", "/", "4", "2", "/", "4"]
    assert "latency: A process for each variant, warmed up; 9 runs for each size" in told, "the threads are unknown"
    assert any(line.split() == ["batch", "4", "2", "/", "4"] for line in told), "one was not timed"
    show_report(Console(quiet=True), Report.of(checks, FLOAT32).with_latency(measured))
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_quiet_leaves_the_failures_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [check("graph.axes", "skip", detail="no axes"), check("outputs.match", "fail", detail="off", compared=1)]
    show_report(Console(quiet=True), Report.of(checks, FLOAT32))
    assert capsys.readouterr().out.splitlines() == [
        "FAIL outputs.match model base: off",
        "fail: 0 passed, 1 failed, 1 skipped",
    ]


def test_outputs_fail_first_and_what_follows_from_them_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    failed = [
        check(name, "fail", variant, case=f"case {number}", detail="off", compared=1)
        for variant in ("base", "optimized")
        for name, number in (("graph.axes", 0), ("iobinding.match", 0), ("levels.match", 0), ("levels.match", 1))
    ]
    failed.append(check("files.sha256", "fail", None, None, detail="changed"))
    failed.append(check("outputs.match", "fail", "optimized", case="a", worst_ratio=3, detail="off", compared=1))
    report = Report.of(failed, FLOAT32).with_notes(["the weights are others"])
    show_report(Console(quiet=True), report)
    assert capsys.readouterr().out.splitlines() == [
        "FAIL outputs.match model optimized (a): off",
        "FAIL files.sha256: changed",
        "FAIL graph.axes model base (case 0): off",
        "FAIL graph.axes model optimized (case 0): off",
        "FAIL iobinding.match model base (case 0): off",
        "FAIL levels.match model base (case 0): off",
        "FAIL levels.match model base (case 1): off",
        "FAIL iobinding.match, levels.match model optimized: 3 more, of the outputs that fail in outputs.match; "
        "--json lists them all",
        "note: the weights are others",
        "fail: 0 passed, 10 failed, 0 skipped",
    ]


def test_notes_of_a_pass_are_no_matter_to_a_quiet_console(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report.of([check("outputs.match", "pass", compared=1)], FLOAT32).with_notes(["base was not timed"])
    show_report(Console(quiet=True), report)
    assert "note" not in capsys.readouterr().out
    show_report(Console(), report)
    assert "note: base was not timed" in capsys.readouterr().out


def test_long_failures_are_wrapped_on_a_terminal(on_terminal: Callable[..., str]) -> None:
    failed = check("outputs.match", "fail", detail="a difference " * 20 + "here", compared=1)
    shown = on_terminal("stdout", lambda: show_report(Console(), Report.of([failed], FLOAT32)))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert max(map(len, lines)) <= 80
    at = next(number for number, line in enumerate(lines) if line.startswith("FAIL"))
    assert lines[at + 1].startswith("  ")
    assert "\x1b[" in shown, "failures stand out"
