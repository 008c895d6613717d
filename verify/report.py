"""The report: every check with its verdict and the numbers behind it, as stable JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer, ValidationError

from onnxport.verify.contract import Model
from onnxport.verify.errors import VerificationError
from onnxport.verify.tolerance import Statistics, Tolerance

Verdict = Literal["pass", "fail", "skip"]

_AGAINST_REFERENCE = ("outputs.match", "golden.match")


def _six_digits(value: float) -> float:
    """Rounds to 6 significant digits; what differs beyond them is noise, and would change the bytes of a report."""
    return float(f"{value:.6g}") + 0.0  # + 0.0: no negative zero


def _json_number(value: float) -> float | str:
    """JSON has no Infinity and no NaN; as strings, pydantic reads them back."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


Number = Annotated[float, AfterValidator(_six_digits), PlainSerializer(_json_number, when_used="json")]

Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False), AfterValidator(_six_digits)]


class CheckResult(Model):
    """One question put to a graph or a folder, and its answer.

    Attributes:
        id: stable id of the check ("outputs.match").
        component, variant, case, output: what it was put to, as far as it applies; of metric.kept, `case` is the data
            set and `output` the metric.
        verdict: "skip" has its reason in `detail`.
        detail: for a person: where, what was seen, what was expected.
        compared: number of elements compared.
        padded_max_abs_diff: largest difference at padded positions; the other numbers are over real positions.
        rms_error: RMS of the difference over the RMS of the reference.
        sqnr_db: power of the reference over the power of the difference, in dB; with the numbers that follow up to
            `topk_agreement`, of graphs of lower precision.
        p50_abs_diff, p90_abs_diff, p99_abs_diff, p99_9_abs_diff: percentiles of the absolute difference.
        p99_error: p99_abs_diff over the RMS of the reference.
        argmax_agreement: share of decisions kept. topk_agreement: share kept of the `top_k` highest entries of each.
        noise_floor: largest difference of the reference from itself in float64.
        floor_ratio: largest difference of the candidate from the reference in float64, over `noise_floor`.
        rtol, atol: the tolerance that was used. min_cosine_allowed, max_rms_error_allowed, min_sqnr_db_allowed,
            max_p99_error_allowed, min_argmax_agreement_allowed, min_topk_agreement_allowed: the thresholds that were
            used.
        examples: how many a task metric was measured on. reference_score, score, chance_score: of the reference, of
            the candidate, and of the best answer that does not look at the input.
        score_loss: reference_score - score. score_loss_low, score_loss_high: its 95 % interval, by a paired bootstrap.
            max_score_loss_allowed: the threshold that was used.
    """

    id: str
    component: str | None = None
    variant: str | None = None
    case: str | None = None
    output: str | None = None
    verdict: Verdict
    detail: str
    compared: int | None = None
    max_abs_diff: Number | None = None
    max_rel_diff: Number | None = None
    worst_ratio: Number | None = None
    reference_rms: Number | None = None
    padded_max_abs_diff: Number | None = None
    min_cosine: Number | None = None
    rms_error: Number | None = None
    sqnr_db: Number | None = None
    p50_abs_diff: Number | None = None
    p90_abs_diff: Number | None = None
    p99_abs_diff: Number | None = None
    p99_9_abs_diff: Number | None = None
    p99_error: Number | None = None
    argmax_agreement: Number | None = None
    top_k: int | None = None
    topk_agreement: Number | None = None
    noise_floor: Number | None = None
    floor_ratio: Number | None = None
    rtol: Number | None = None
    atol: Number | None = None
    min_cosine_allowed: Number | None = None
    max_rms_error_allowed: Number | None = None
    min_sqnr_db_allowed: Number | None = None
    max_p99_error_allowed: Number | None = None
    min_argmax_agreement_allowed: Number | None = None
    min_topk_agreement_allowed: Number | None = None
    examples: int | None = None
    reference_score: Number | None = None
    score: Number | None = None
    chance_score: Number | None = None
    score_loss: Number | None = None
    score_loss_low: Number | None = None
    score_loss_high: Number | None = None
    max_score_loss_allowed: Number | None = None


class Summary(Model):
    """How many checks ended how."""

    passed: int
    failed: int
    skipped: int


class Latency(Model):
    """How long one variant took for one case, on the machine of the verification.

    Attributes:
        component, variant, case: what was timed.
        sizes: of every named axis of the inputs.
        threads: within an operator; None: unknown.
        runs: how many were timed, after a warm-up.
        min_ms, p50_ms, p90_ms: the fastest run, the median and the 90th percentile, in milliseconds.
    """

    component: str
    variant: str
    case: str
    sizes: dict[str, int]
    threads: int | None = None
    runs: int = Field(ge=1)
    min_ms: Milliseconds
    p50_ms: Milliseconds
    p90_ms: Milliseconds


class Verified(Model):
    """What a report is of: names and versions, no paths, so that the same verification gives the same bytes.

    Attributes:
        name: of the bundle's folder, or of the file; None: the report stored in a bundle, which may be renamed.
        model: where it came from: a Hub id, a folder's name or "package.module:factory".
        architecture: class of the PyTorch model.
        engine: what made the graphs; None: unknown.
        suite: whose checks were put.
        versions: package to version, of what made the graphs, or of what answered for a file.
    """

    name: str | None = None
    model: str
    architecture: str | None = None
    task: str | None = None
    engine: str | None = None
    suite: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)


class Report(Model):
    """All checks of one verification.

    `tolerance` is the criterion that was asked for; a check that used another one carries it. `detail` says why the
    verdict is "fail" although no check failed: nothing was compared. `latency` is there if it was asked for; it is
    another one every time, and no part of the verdict. `subject` is what was verified, as far as it is known. `notes`
    are what a reader of the verdict should know and no check asks, a sentence each without its full stop.
    """

    schema_version: Literal[1] = 1
    verdict: Literal["pass", "fail"]
    detail: str | None = None
    subject: Verified | None = None
    notes: tuple[str, ...] | None = None
    summary: Summary
    tolerance: Tolerance | Statistics
    environment: dict[str, str]
    checks: tuple[CheckResult, ...]
    latency: tuple[Latency, ...] | None = None

    @classmethod
    def of(
        cls,
        checks: Iterable[CheckResult],
        tolerance: Tolerance | Statistics,
        *,
        provider: str | None = None,
        subject: Verified | None = None,
    ) -> Report:
        """Judges the checks: "fail" if one failed, or if none compared any values.

        Args:
            checks: in any order; the report sorts them by component, variant, id, case and output.
            tolerance: the criterion that was asked for.
            provider: the execution provider that was used, for `environment`.
            subject: what was verified.
        """
        ordered = tuple(sorted(checks, key=_order))
        count = {verdict: sum(check.verdict == verdict for check in ordered) for verdict in ("pass", "fail", "skip")}
        compared = any(c.verdict == "pass" and c.id in _AGAINST_REFERENCE and c.compared for c in ordered)
        detail = None if compared or count["fail"] else "no check compared any values, and that proves nothing"
        return cls(
            verdict="pass" if compared and not count["fail"] else "fail",
            detail=detail,
            subject=subject,
            summary=Summary(passed=count["pass"], failed=count["fail"], skipped=count["skip"]),
            tolerance=tolerance,
            environment=environment(provider),
            checks=ordered,
        )

    def with_latency(self, measured: Iterable[Latency]) -> Report:
        """Returns the report with what was measured beside the checks; nothing else of it changes."""
        return self.model_copy(update={"latency": tuple(measured)})

    def with_notes(self, notes: Iterable[str]) -> Report:
        """Returns the report with more notes; nothing else of it changes."""
        told = (*(self.notes or ()), *notes)
        return self.model_copy(update={"notes": told}) if told else self

    def with_name(self, name: str) -> Report:
        """Returns the report of a subject that goes by this name; one without a subject stays as it is."""
        if self.subject is None:
            return self
        return self.model_copy(update={"subject": self.subject.model_copy(update={"name": name})})

    def to_json(self) -> str:
        """Returns the report as JSON. Equal reports give equal text: no timestamps, 6 significant digits."""
        document = self.model_dump(mode="json", exclude_none=True)
        return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Report:
        """Reads what `to_json` wrote.

        Raises:
            VerificationError: the text is no report of schema version 1.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as e:
            first = e.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the document"
            raise VerificationError(
                f"This is no verification report of schema version 1: {where}: {first['msg']}. Verify again."
            ) from e


def environment(provider: str | None = None) -> dict[str, str]:
    """Returns the versions that the numbers were measured with."""
    import platform
    from importlib.metadata import version

    import numpy
    import onnxruntime

    found = {
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "onnx": version("onnx"),
        "onnxruntime": onnxruntime.__version__,
        "machine": platform.machine(),
    }
    return found if provider is None else {**found, "provider": provider}


def _order(check: CheckResult) -> tuple[Any, ...]:
    return tuple(part or "" for part in (check.component, check.variant, check.id, check.case, check.output))
