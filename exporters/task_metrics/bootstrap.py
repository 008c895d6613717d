"""How sure a loss is that was measured on a sample of examples: a paired bootstrap."""

from __future__ import annotations

import numpy as np

from onnxport.exporters.task_metrics.metric import Score

CONFIDENCE = 0.95
RESAMPLES = 1000
_SEED = 0
_AT_ONCE = 2**22  # drawn examples in memory


def loss_interval(reference: Score, score: Score) -> tuple[float, float]:
    """Returns the bounds of the percentile interval of reference - score; the same for the same scores.

    Paired: each resample draws examples, and both models are scored on the same ones.
    """
    from scipy.stats import bootstrap

    examples = len(reference.counts)

    def loss(drawn: np.ndarray, axis: int = -1) -> np.ndarray:
        rows = np.moveaxis(drawn, axis, -1)
        times = np.apply_along_axis(np.bincount, -1, rows, minlength=examples).astype(np.float64)
        lost: np.ndarray = reference.of(times @ reference.counts) - score.of(times @ score.counts)
        return lost

    result = bootstrap(
        (np.arange(examples),),
        loss,
        n_resamples=RESAMPLES,
        batch=max(1, _AT_ONCE // examples),
        vectorized=True,
        confidence_level=CONFIDENCE,
        method="percentile",  # the others divide by the spread, which is zero where both models answer alike
        rng=np.random.default_rng(_SEED),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)
