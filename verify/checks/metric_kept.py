"""metric.*: is the task a model is used for done as well as by the reference?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxport.verify.report import CheckResult, Verdict

_ROUNDING = 1e-9  # 0.90 - 0.89 is a little more than 0.01


@dataclass(frozen=True)
class ScorePair:
    """The scores of a candidate and of its reference on the same examples; higher is better.

    Attributes:
        component, variant: the candidate.
        dataset, metric: what was asked, and what the score is called.
        reference: what the reference is called, and `note` a sentence on it; "" for none.
        examples: how many there were.
        reference_score, score: of the reference and of the candidate.
        chance: score of the best answer that does not look at the input.
        loss_interval: bounds of the confidence interval (95 %) of reference_score - score.
        max_loss: by how much the score may be lower.
    """

    component: str
    variant: str
    dataset: str
    metric: str
    reference: str
    note: str
    examples: int
    reference_score: float
    score: float
    chance: float
    loss_interval: tuple[float, float]
    max_loss: float

    @property
    def loss(self) -> float:
        """How much lower the candidate's score is; negative where it is higher."""
        return self.reference_score - self.score


def check_kept(pairs: Sequence[ScorePair]) -> list[CheckResult]:
    """No score of a candidate is lower than the reference's by more than is allowed. One result per score.

    A reference no better than chance has nothing to lose: that score is skipped, and fails where no other score of the
    same candidate can tell.

    Args:
        pairs: the scores of one candidate on one data set.
    """
    blind = [pair for pair in pairs if not pair.reference_score > pair.chance]
    return [_judge(pair, blind=pair in blind, all_blind=len(blind) == len(pairs)) for pair in pairs]


def _judge(pair: ScorePair, *, blind: bool, all_blind: bool) -> CheckResult:
    low, high = pair.loss_interval
    kept = pair.loss <= pair.max_loss + _ROUNDING  # False for NaN
    verdict: Verdict = "pass" if kept else "fail"
    told = [
        f"{pair.metric} {pair.score:.4g}, of {pair.reference} {pair.reference_score:.4g}: "
        f"a loss of {pair.loss:.4g}, allowed {pair.max_loss:.4g}; "
        f"95 % interval of the loss {low:.4g} to {high:.4g}, {pair.examples} examples"
    ]
    if blind:
        verdict = "skip" if kept and not all_blind else "fail"
        told.insert(
            0,
            f"{pair.reference} is no better than chance ({pair.chance:.4g}), so nothing could get lost: are these "
            "labels and inputs for this model?",
        )
    elif low < -pair.max_loss and high > pair.max_loss:
        told.append("too few examples to tell: the interval is wider than the allowed loss on both sides")
    if pair.note:
        told.append(pair.note)
    return CheckResult(
        id="metric.kept",
        component=pair.component,
        variant=pair.variant,
        case=pair.dataset,
        output=pair.metric,
        verdict=verdict,
        detail="; ".join(told),
        examples=pair.examples,
        reference_score=pair.reference_score,
        score=pair.score,
        chance_score=pair.chance,
        score_loss=pair.loss,
        score_loss_low=low,
        score_loss_high=high,
        max_score_loss_allowed=pair.max_loss,
    )
