"""text-classification: a text, or a pair of texts, and its label."""

from __future__ import annotations

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.datasets import Dataset
from onnxport.exporters.task_metrics.single_label import SingleLabel, read_labels
from onnxport.exporters.task_metrics.text_features import TextFeatures

TEXT = ("text", "sentence", "sentence1", "premise")
PAIR = ("text_pair", "sentence2", "hypothesis")


class TextClassification(SingleLabel):
    """Accuracy and macro F1 of the predicted classes.

    Raises:
        DatasetError: a column is missing, a label is none of the model's, or the model does not choose one class.
    """

    def __init__(self, bundle: Bundle, dataset: Dataset) -> None:
        texts = dataset.texts(TEXT, "texts")
        labels = read_labels(bundle, dataset)
        features = TextFeatures(bundle, dataset.name)
        pairs = list(zip(texts, dataset.texts(PAIR, "second texts"), strict=True)) if dataset.has(PAIR) else None
        super().__init__(labels, features.batches(features.encode(pairs or texts)))
