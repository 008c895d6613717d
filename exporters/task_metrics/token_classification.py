"""token-classification: the words of a sentence, and a label for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.datasets import Dataset
from onnxport.exporters.errors import DatasetError
from onnxport.exporters.task_metrics.classification import accuracy, macro_f1, predicted
from onnxport.exporters.task_metrics.metric import Batch, Score
from onnxport.exporters.task_metrics.single_label import OUTPUT, class_labels
from onnxport.exporters.task_metrics.text_features import TextFeatures

_WORDS = ("tokens", "words")
_LABELS = ("labels", "ner_tags", "tags", "label")
_IGNORED = -100


class TokenClassification:
    """Accuracy and macro F1 over words; a word has the class of its first token. An example is a sentence.

    A label of -100 is not counted, and neither are words that a sentence is cut before.

    Raises:
        DatasetError: a column is missing, a label is none of the model's, or words and labels differ in number.
    """

    def __init__(self, bundle: Bundle, dataset: Dataset) -> None:
        sentences = [_split(value) for value in dataset.column(_WORDS, "words")]
        tags = [_split(value) for value in dataset.column(_LABELS, "labels")]
        known = class_labels(bundle, dataset)
        features = TextFeatures(bundle, dataset.name)
        self._encodings = features.encode(sentences, words=True)
        self._labels: list[np.ndarray] = []
        self._first_tokens: list[list[int]] = []
        for number, (words, labels, encoding) in enumerate(zip(sentences, tags, self._encodings, strict=True), 1):
            if len(words) != len(labels):
                raise DatasetError(
                    f"{dataset.name}, example {number}: {len(words)} words and {len(labels)} labels; give one for each"
                )
            classes = [_IGNORED if str(one) == str(_IGNORED) else known.number(one, number) for one in labels]
            first = {word: at for at, word in reversed(list(enumerate(encoding.word_ids))) if word is not None}
            counted = [word for word in first if classes[word] != _IGNORED]
            self._labels.append(np.array([classes[word] for word in counted], dtype=np.int64))
            self._first_tokens.append([first[word] for word in counted])
        self._counted = [item for item, labels in enumerate(self._labels) if len(labels)]
        if not self._counted:
            raise DatasetError(f"{dataset.name} has no word with a label; give some")
        self.batches = features.batches(self._encodings)
        self.examples = len(self._counted)

    def read(self, outputs: Mapping[str, np.ndarray], batch: Batch) -> Sequence[Any]:
        logits = outputs[OUTPUT]
        return [
            predicted(logits[row, real][self._first_tokens[item]])
            for row, (item, real) in enumerate(zip(batch.items, batch.real, strict=True))
        ]

    def scores(self, answers: Sequence[Any]) -> tuple[Score, ...]:
        expected = [self._labels[item] for item in self._counted]
        found = [answers[item] for item in self._counted]
        return accuracy(expected, found), macro_f1(expected, found)


def _split(value: Any) -> list[Any]:
    """A cell of a table holds words with spaces between them; JSON has lists."""
    return value.split() if isinstance(value, str) else list(value) if isinstance(value, list) else [value]
