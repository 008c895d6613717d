"""text-classification: a text, or a pair of texts, and its label."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.datasets import Dataset
from onnxport.exporters.errors import DatasetError
from onnxport.exporters.task_metrics.classification import accuracy, macro_f1, predicted
from onnxport.exporters.task_metrics.labels import Labels
from onnxport.exporters.task_metrics.metric import Batch, Score
from onnxport.exporters.task_metrics.text_features import TextFeatures, single_component

TEXT = ("text", "sentence", "sentence1", "premise")
PAIR = ("text_pair", "sentence2", "hypothesis")
LABEL = ("label", "labels")
OUTPUT = "logits"


class TextClassification:
    """Accuracy and macro F1 of the predicted classes.

    Raises:
        DatasetError: a column is missing, a label is none of the model's, or the model does not choose one class.
    """

    def __init__(self, bundle: Bundle, dataset: Dataset) -> None:
        texts = dataset.texts(TEXT, "texts")
        self._labels = read_labels(bundle, dataset)
        features = TextFeatures(bundle, dataset.name)
        pairs = list(zip(texts, dataset.texts(PAIR, "second texts"), strict=True)) if dataset.has(PAIR) else None
        self.batches = features.batches(features.encode(pairs or texts))
        self.examples = len(self._labels)

    def read(self, outputs: Mapping[str, np.ndarray], batch: Batch) -> Sequence[Any]:
        return list(predicted(outputs[OUTPUT][: len(batch.items)]))

    def scores(self, answers: Sequence[Any]) -> tuple[Score, ...]:
        found = [np.array([answer]) for answer in answers]
        return accuracy(self._labels, found), macro_f1(self._labels, found)


def read_labels(bundle: Bundle, dataset: Dataset) -> list[np.ndarray]:
    """Returns the class of each example: int64 [1].

    Raises:
        DatasetError: as `TextClassification`.
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
