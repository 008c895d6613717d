"""Task metrics: is what a model is used for kept? One literal table from a task to what measures it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.datasets import Dataset
from onnxport.exporters.errors import DatasetError
from onnxport.exporters.task_metrics.metric import TaskMetric
from onnxport.verify.import_target import import_target

_HERE = "onnxport.exporters.task_metrics"

TASK_METRICS: Mapping[str, str] = {
    "feature-extraction": f"{_HERE}.retrieval:Retrieval",
    "sentence-similarity": f"{_HERE}.retrieval:Retrieval",
    "text-classification": f"{_HERE}.text_classification:TextClassification",
    "token-classification": f"{_HERE}.token_classification:TokenClassification",
    "question-answering": f"{_HERE}.question_answering:QuestionAnswering",
    "fill-mask": f"{_HERE}.fill_mask:FillMask",
    "image-classification": f"{_HERE}.image_classification:ImageClassification",
    "audio-classification": f"{_HERE}.audio_classification:AudioClassification",
    "automatic-speech-recognition": f"{_HERE}.speech_recognition:SpeechRecognition",
}
"""Task to "module:class"; the class takes a bundle and a data set."""


def task_metric(bundle: Bundle, dataset: Dataset) -> TaskMetric:
    """Returns a data set as a question to the models of a bundle.

    Raises:
        DatasetError: no metric is known for the bundle's task, there is a single example, or the data set does not fit.
        ModuleNotFoundError: the extra `metrics` is not installed.
    """
    task = bundle.manifest.source.task
    if task not in TASK_METRICS:
        raise DatasetError(
            f"{bundle.path} is for {task}, for which there is no metric; there is one for {', '.join(TASK_METRICS)}"
        )
    for module in ("scipy", "sklearn", "jiwer"):  # at once, and not after minutes of work
        import_module(module)
    metric: TaskMetric = import_target(TASK_METRICS[task])(bundle, dataset)
    if metric.examples < 2:
        raise DatasetError(f"{dataset.name} has one example; a metric needs more, hundreds to tell a loss of a percent")
    return metric
