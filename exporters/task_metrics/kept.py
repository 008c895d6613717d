"""Puts a data set to the variants of a bundle and to their reference, for the check metric.kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.datasets import read_dataset
from onnxport.exporters.errors import BundleError
from onnxport.exporters.task_metrics import task_metric
from onnxport.exporters.task_metrics.bootstrap import loss_interval
from onnxport.exporters.task_metrics.metric import Score, TaskMetric
from onnxport.verify.checks import load_check
from onnxport.verify.checks.metric_kept import ScorePair
from onnxport.verify.errors import OnnxportError, SessionError
from onnxport.verify.report import CheckResult, Verdict
from onnxport.verify.runners import CPU, OrtRunner, Runner, one_line

MAX_LOSS = 0.01
_CHECK = "metric.kept"
_BASE = "base"


class UnreadableAnswer(OnnxportError):
    """A model's outputs have not the names or shapes that a task's answers are read from."""


@dataclass(frozen=True)
class MetricQuestion:
    """A data set, ready to be put to runners.

    Attributes:
        bundle: whose variants are asked.
        dataset: the data set's name.
        metric: the data set as a question to models of the bundle's task.
        max_loss: by how much a score may be lower than the reference's.
    """

    bundle: Bundle
    dataset: str
    metric: TaskMetric
    max_loss: float

    def ask(self, runner: Runner) -> list[Any]:
        """Returns the runner's answers to all items, in their order.

        Raises:
            UnreadableAnswer: its outputs have other names or shapes than the metric reads.
            OnnxportError: as the runner.
        """
        answers: dict[int, Any] = {}
        for batch in self.metric.batches:
            outputs = runner.run(batch.case)
            try:
                answers.update(zip(batch.items, self.metric.read(outputs, batch), strict=True))
            except (KeyError, IndexError, ValueError) as e:
                shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
                raise UnreadableAnswer(
                    f"the outputs of {runner.name} cannot be read ({type(e).__name__}: {one_line(e)}): seen {shapes}; "
                    f"expected those that {self.bundle.manifest.source.task} has. Export the model for its task."
                ) from e
        return [answers[item] for item in range(len(answers))]

    def verify(
        self,
        *,
        variants: Collection[str] | None = None,
        provider: str | None = None,
        pytorch: Sequence[Any] | None = None,
    ) -> list[CheckResult]:
        """Holds the scores of the bundle's variants against those of a reference. One result per variant and score.

        Args:
            variants: names; None: all.
            provider: execution provider; None: the CPU's.
            pytorch: answers of the PyTorch model, the reference (`ask`); None: `base` is it.

        Raises:
            BundleError: there is no such variant.
            ProviderError: this ONNX Runtime has no such provider.
        """
        component = self.bundle.component()
        asked = [name for name in component.variants if variants is None or name in variants]
        name, note, answers = "pytorch", "", pytorch
        if answers is None:
            name, note = _BASE, _why_base(self.bundle)
            asked = [variant for variant in asked if variant != _BASE]
            if not asked:
                told = "base is the reference where no source is given, and no other variant was asked for (--against)"
                return [self._result(_BASE, "skip", told)]
            try:
                answers = self._ask_variant(_BASE, provider)
            except (SessionError, BundleError, UnreadableAnswer) as e:  # whether anything is kept cannot be told
                return [self._result(one, "fail", f"base, the reference, gives no answers: {e}") for one in asked]
        reference = self.metric.scores(answers)
        results = []
        for variant in asked:
            try:
                scores = self.metric.scores(self._ask_variant(variant, provider))
            except (SessionError, BundleError, UnreadableAnswer) as e:
                results.append(self._result(variant, "fail", f"no answers: {e}"))
                continue
            pairs = [self._pair(variant, name, note, *both) for both in zip(reference, scores, strict=True)]
            results += load_check(_CHECK)(pairs)
        return results

    def _ask_variant(self, variant: str, provider: str | None) -> list[Any]:
        entry = self.bundle.variant(variant)
        path = self.bundle.file(variant)
        with OrtRunner(path, provider=provider or CPU, session_options=entry.session_options) as runner:
            return self.ask(runner)

    def _pair(self, variant: str, name: str, note: str, reference: Score, score: Score) -> ScorePair:
        return ScorePair(
            component=self.bundle.component_name(None),
            variant=variant,
            dataset=self.dataset,
            metric=score.name,
            reference=name,
            note=note,
            examples=self.metric.examples,
            reference_score=reference.value,
            score=score.value,
            chance=score.chance,
            loss_interval=loss_interval(reference, score),
            max_loss=self.max_loss,
        )

    def _result(self, variant: str, verdict: Verdict, detail: str) -> CheckResult:
        return CheckResult(
            id=_CHECK,
            component=self.bundle.component_name(None),
            variant=variant,
            case=self.dataset,
            verdict=verdict,
            detail=detail,
            max_score_loss_allowed=self.max_loss,
        )


def metric_question(bundle: Bundle, dataset: Path, max_loss: float = MAX_LOSS) -> MetricQuestion:
    """Reads a data set and makes sure that it can be put to a bundle. Nothing is run.

    Raises:
        DatasetError: the data set cannot be read, or does not fit the bundle's task and labels.
        ModuleNotFoundError: the extra `metrics` is not installed.
    """
    found = read_dataset(dataset)
    return MetricQuestion(bundle, found.name, task_metric(bundle, found), max_loss)


def _why_base(bundle: Bundle) -> str:
    if bundle.manifest.verification.verdict == "pass":
        return "base agrees with PyTorch by the stored report"
    return "base itself was not found to agree with PyTorch when the bundle was made"
