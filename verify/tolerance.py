"""How far a candidate may be from its reference, always explicit.

Two kinds of criterion: `Tolerance` (per element, for float32 and float16) and `Statistics` (for quantised graphs,
where single elements mean little).
"""

from __future__ import annotations

from pydantic import Field

from onnxport.verify.contract import Model


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

    `min_cosine`: the worst cosine between a row of the candidate and the same row of the reference, a row being a
    vector along the last axis at a real (unpadded) position; an output of one column is one row. `max_rms_error`: the
    RMS of the difference over the RMS of the reference, which sees what a cosine cannot: a wrong scale.
    `min_argmax_agreement`: the share of decisions kept, for the outputs named in `decisions` (output name to the axis
    along which argmax is taken), over all cases together.
    """

    min_cosine: float = Field(ge=-1, le=1)
    max_rms_error: float = Field(default=0.5, gt=0, allow_inf_nan=False)
    min_argmax_agreement: float = Field(default=0.0, ge=0, le=1)
    decisions: dict[str, int] = Field(default_factory=dict)


Criterion = Tolerance | Statistics

FLOAT32 = Tolerance(rtol=1e-3, atol=1e-4)
FLOAT16 = Tolerance(rtol=1e-2, atol=5e-3)
