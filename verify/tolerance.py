"""How far a candidate may be from its reference, always explicit.

Two kinds of criterion: `Tolerance` (per element, for float32 and float16) and `Statistics` (for quantised graphs,
where single elements mean little).
"""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field, PositiveInt, model_validator

from onnxport.verify.contract import Model

MAX_RMS_ERROR = 0.5
_P99_OVER_RMS = 3.0  # of errors that are normally distributed, the 99th percentile is 2.58 times the RMS


class ElementTolerance(Model):
    """Allowed difference `|a - b| <= atol + rtol * |b|` per element, b the reference."""

    rtol: float = Field(ge=0, allow_inf_nan=False)
    atol: float = Field(ge=0, allow_inf_nan=False)


class Tolerance(ElementTolerance):
    """The tolerance of a graph, with overrides for single outputs by name."""

    per_output: dict[str, ElementTolerance] = Field(default_factory=dict)

    def of(self, output: str) -> ElementTolerance:
        """Returns the tolerance that holds for the output of that name."""
        return self.per_output.get(output, self)


class Statistics(Model):
    """Thresholds for graphs of lower precision.

    Two that are not given follow from `max_rms_error`, so that one number loosens or tightens all three.

    Attributes:
        min_cosine: the worst cosine between a row of the candidate and the same row of the reference, a row being a
            vector along the last axis at a real (unpadded) position; an output of one column is one row.
        max_rms_error: the RMS of the difference over the RMS of the reference, which sees what a cosine cannot: a wrong
            scale.
        min_sqnr_db: the signal to quantisation noise ratio in dB, 10 log10(power of the reference / power of the
            difference). Not given: that of an RMS error of `max_rms_error` (6.02 dB for 0.5).
        max_p99_error: the 99th percentile of |a - b| over the RMS of the reference. It sees what an average cannot: a
            few channels that are far off. Not given: 3 times `max_rms_error`, a little more than normally distributed
            errors of that RMS have.
        min_argmax_agreement: the share of decisions kept, for the outputs named in `decisions` (output name to the axis
            along which argmax is taken), over all cases together.
        top_k, min_topk_agreement: the share kept of the `top_k` highest entries of each decision, in any order, over
            all cases together. Decisions among `top_k` entries or fewer take no part.
    """

    min_cosine: float = Field(ge=-1, le=1)
    max_rms_error: float = Field(default=MAX_RMS_ERROR, gt=0, allow_inf_nan=False)
    min_sqnr_db: float = Field(default=0.0, allow_inf_nan=False)  # these two defaults are never used: `_from_rms`
    max_p99_error: float = Field(default=0.0, gt=0, allow_inf_nan=False)
    min_argmax_agreement: float = Field(default=0.0, ge=0, le=1)
    top_k: PositiveInt = 5
    min_topk_agreement: float = Field(default=0.0, ge=0, le=1)
    decisions: dict[str, int] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_rms(cls, given: Any) -> Any:
        rms = given.get("max_rms_error", MAX_RMS_ERROR) if isinstance(given, dict) else None
        if isinstance(rms, bool) or not isinstance(rms, int | float) or not 0 < rms < math.inf:
            return given  # which is refused
        # Towards the looser side: RMS error and SQNR are one quantity, and may not disagree at the edge by rounding.
        decibels = math.floor(-2000 * math.log10(rms)) / 100
        return {"min_sqnr_db": decibels, "max_p99_error": float(f"{_P99_OVER_RMS * rms:.6g}"), **given}


Criterion = Tolerance | Statistics

FLOAT32 = Tolerance(rtol=1e-3, atol=1e-4)
FLOAT16 = Tolerance(rtol=1e-2, atol=5e-3)
