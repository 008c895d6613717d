"""Reports with everything in them that a report can hold."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from onnxport.verify import CheckResult, Latency, Report, Tolerance
from onnxport.verify.report import Verified

CASES = ("random 2x8", "padding left 2x12", "text zh", "zeros")
OUTPUTS = ("hidden", "pooled")
HOSTILE = (
    "\x00\x1b[31m\x85\ufffe\ud800\u202e</script><script>document.title='owned'</script><img src=x onerror=1>"
    "]]> -->\"'&amp; |`*_[a](http://b) @someone #12 100%\r\n::error::forged\n# heading 漢字 🙂"
)


@pytest.fixture
def check() -> Callable[..., CheckResult]:
    """check("outputs.match", "fail", case=...) -> a result for the variant base of the component model."""

    def make(check_id: str = "outputs.match", verdict: str = "pass", **fields: object) -> CheckResult:
        given = {"component": "model", "variant": "base", "detail": "as it should be", **fields}
        return CheckResult.model_validate({"id": check_id, "verdict": verdict, **given})

    return make


@pytest.fixture
def make_report(check: Callable[..., CheckResult]) -> Callable[..., Report]:
    """make_report(failing=True) -> three variants, two outputs, four cases; 4 checks fail, two of them with NaN."""

    def make(*, failing: bool = True, detail: str = "largest difference 1e-07") -> Report:
        checks = [
            check("files.sha256", component=None, variant=None, detail=f"{name}: size and sha256 as recorded")
            for name in ("bundle.json", "model.onnx")
        ]
        for number, variant in enumerate(("int8", "base", "optimized")):
            checks.append(check("graph.axes", variant=variant, detail="11 dimensions as promised"))
            checks.append(check("fusion.expected", "skip", variant=variant, detail="no fusion is required or recorded"))
            for index, case in enumerate(CASES):
                for output in OUTPUTS:
                    measured: dict[str, object] = {"compared": 1024, "max_abs_diff": 1e-7 * (index + 1)}
                    if variant == "int8":
                        measured |= {"min_cosine": 0.99, "min_cosine_allowed": 0.9, "rms_error": 0.1}
                        measured |= {"max_rms_error_allowed": 0.5}
                    else:
                        measured |= {"worst_ratio": index * 10.0 ** (-3 + number), "rtol": 1e-3, "atol": 1e-4}
                    bad = failing and variant == "optimized" and index in (1, 2)
                    if bad:
                        measured["worst_ratio"] = math.inf if case == "text zh" else 14.5
                        measured["max_rel_diff"] = math.nan if case == "text zh" else 3.0
                    verdict = "fail" if bad else "pass"
                    checks.append(
                        check(
                            "outputs.match",
                            verdict,
                            variant=variant,
                            case=case,
                            output=output,
                            detail=detail,
                            **measured,
                        )
                    )
        return Report.of(checks, Tolerance(rtol=1e-3, atol=1e-4), provider="CPUExecutionProvider")

    return make


@pytest.fixture
def subject() -> Verified:
    """A bundle as `onnxport verify` names it."""
    versions = {"torch": "2.9.1", "onnxport": "0.1.0"}
    known = {"architecture": "BertModel", "task": "fill-mask", "engine": "dynamo", "suite": "full"}
    return Verified(name="out-1.0", model="tiny-bert", versions=versions, **known)


@pytest.fixture
def timed_report(make_report: Callable[..., Report]) -> Report:
    """The three variants timed at two sizes, in the order in which they were measured."""

    def latency(variant: str, length: int, batch: int, runs: int, ms: float) -> Latency:
        sizes = {"batch": batch, "sequence": length}
        numbers = {"min_ms": ms * 1.25, "p50_ms": ms * 1.5, "p90_ms": ms * 2.25}
        return Latency(
            component="model", variant=variant, case=f"random {length}", sizes=sizes, threads=2, runs=runs, **numbers
        )

    variants = ("int8", "base", "optimized")
    return make_report(failing=False).with_latency(
        [latency(variant, *size) for variant in variants for size in ((4, 1, 200, 1.0), (512, 2, 8, 25.0))]
    )


@pytest.fixture
def hostile_report(check: Callable[..., CheckResult]) -> Report:
    """Every text that comes from elsewhere is an attack on the format it is written in."""
    fields: dict[str, object] = {
        "detail": HOSTILE,
        "case": HOSTILE,
        "output": HOSTILE,
        "worst_ratio": 2.0,
        "compared": 1,
    }
    names = {"component": HOSTILE, "variant": HOSTILE}
    checks = [check(f"outputs.match{HOSTILE}", verdict, **names, **fields) for verdict in ("pass", "fail", "skip")]
    checks.append(check("files.sha256", component=None, variant=None, detail=HOSTILE))
    report = Report.of(checks, Tolerance(rtol=1e-3, atol=1e-4, per_output={HOSTILE: {"rtol": 1, "atol": 1}}))
    subject = Verified(name=HOSTILE, model=HOSTILE, architecture=HOSTILE, versions={HOSTILE: HOSTILE})
    hostile = {"environment": {HOSTILE: HOSTILE}, "subject": subject, "notes": (HOSTILE,)}
    return report.model_copy(update=hostile)


@pytest.fixture
def hostile_text() -> str:
    return HOSTILE


@pytest.fixture
def empty_report() -> Report:
    """Nothing was compared, so the verdict is "fail" although no check failed."""
    return Report.of([], Tolerance(rtol=1e-3, atol=1e-4))
