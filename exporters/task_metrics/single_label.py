"""Models that choose one class for an example: the classes, the labels of a data set, and the scores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.datasets import Dataset
from onnxport.exporters.errors import DatasetError
from onnxport.exporters.task_metrics.classification import accuracy, macro_f1, predicted
from onnxport.exporters.task_metrics.labels import Labels
from onnxport.exporters.task_metrics.metric import Batch, Score
from onnxport.exporters.task_metrics.text_features import single_component

LABEL = ("label", "labels")
OUTPUT = "logits"


class SingleLabel:
    """Accuracy and macro F1 of the predicted classes.

    Args:
        labels: the class of each example: int64 [1].
        batches: the inputs of the examples.
    """

    def __init__(self, labels: Sequence[np.ndarray], batches: Iterable[Batch]) -> None:
        self._labels = labels
        self.batches = batches
        self.examples = len(labels)

    def read(self, outputs: Mapping[str, np.ndarray], batch: Batch) -> Sequence[Any]:
        return list(predicted(outputs[OUTPUT][: len(batch.items)]))

    def scores(self, answers: Sequence[Any]) -> tuple[Score, ...]:
        found = [np.array([answer]) for answer in answers]
        return accuracy(self._labels, found), macro_f1(self._labels, found)


def read_labels(bundle: Bundle, dataset: Dataset) -> list[np.ndarray]:
    """Returns the class of each example: int64 [1].

    Raises:
        DatasetError: a column is missing, a label is none of the model's, or the model does not choose one class.
    """
    labels = class_labels(bundle, dataset)
    values = dataset.column(LABEL, "labels")
    return [np.array([labels.number(value, number)]) for number, value in enumerate(values, 1)]


def class_labels(bundle: Bundle, dataset: Dataset) -> Labels:
    """Returns the classes that a bundle's model chooses from.

    Raises:
        DatasetError: it has a single output (a regression), or chooses any number of classes.
    """
    component = single_component(bundle)
    classes = next((spec.shape[-1] for spec in component.outputs if spec.name == OUTPUT), None)
    if not isinstance(classes, int) or classes < 2:
        raise DatasetError(
            f"the model's {OUTPUT} have {classes or 'no'} classes; a data set is for models that choose one of several"
        )
    config = bundle.path / "config.json"
    kind = json.loads(config.read_text(encoding="utf-8")).get("problem_type") if config.is_file() else None
    if kind not in (None, "single_label_classification"):
        raise DatasetError(f"the model's problem_type is {kind}; a data set is for models that choose one class")
    return Labels(bundle.manifest.preprocessing.labels, classes, dataset.name)
