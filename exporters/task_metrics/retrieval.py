"""sentence-similarity and feature-extraction: pairs of texts, each of which should find the other among all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.datasets import Dataset
from onnxport.exporters.errors import DatasetError
from onnxport.exporters.task_metrics.metric import Batch, Score, mean_score
from onnxport.exporters.task_metrics.text_features import TextFeatures

_QUERY = ("query", "anchor", "question", "text", "sentence1")
_POSITIVE = ("positive", "answer", "text_pair", "sentence2")
_TOP = (1, 5)
_LEAST_TEXTS = 3  # scikit-learn takes two for a yes-or-no question
_NOWHERE, _NEAREST = -2.0, 2.0  # below and above every cosine
_TIE = 1e-9  # rounding tells equal vectors apart by less, float32 tells different ones apart by more


class Retrieval:
    """recall@k: the share of first texts whose own second text is among the k nearest of all second texts, by cosine.

    An embedding is the output sentence_embedding where the graph has it, else the mean of last_hidden_state over a
    text's tokens. An example is a first text; second texts that occur twice are one. Of texts that are equally near
    the own one comes last, so that a model that makes one vector of everything finds nothing; and what is not a number
    is nearer than every text.

    Raises:
        DatasetError: a column is missing, there are fewer than three different second texts, or the graph has neither
            output.
    """

    def __init__(self, bundle: Bundle, dataset: Dataset) -> None:
        queries, positives = dataset.texts(_QUERY, "first texts"), dataset.texts(_POSITIVE, "second texts")
        documents = list(dict.fromkeys(positives))
        if len(documents) < _LEAST_TEXTS:
            raise DatasetError(
                f"{dataset.name} has {len(documents)} different second texts; to search among, give at least "
                f"{_LEAST_TEXTS}"
            )
        numbers = {text: number for number, text in enumerate(documents)}
        self._expected = np.array([numbers[text] for text in positives])
        self._documents = len(documents)
        features = TextFeatures(bundle, dataset.name)
        names = [spec.name for spec in features.component.outputs]
        self._output = next((name for name in ("sentence_embedding", "last_hidden_state") if name in names), None)
        if self._output is None:
            raise DatasetError(
                f"the graph gives {', '.join(names)}; expected sentence_embedding or last_hidden_state to compare texts"
            )
        self.batches = features.batches(features.encode([*queries, *documents]))
        self.examples = len(queries)

    def read(self, outputs: Mapping[str, np.ndarray], batch: Batch) -> Sequence[Any]:
        assert self._output is not None
        values = outputs[self._output]
        if values.ndim not in (2, 3):
            raise ValueError(f"{self._output} is {list(values.shape)}, no vector for each text or token")
        if values.ndim == 2:
            return list(values[: len(batch.items)])
        with np.errstate(all="ignore"):  # of infinities there is no mean
            return [values[row, real].mean(axis=0) for row, real in enumerate(batch.real)]

    def scores(self, answers: Sequence[Any]) -> tuple[Score, ...]:
        from sklearn.metrics import top_k_accuracy_score

        vectors = np.stack(answers).astype(np.float64)
        with np.errstate(all="ignore"):
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            cosines = vectors[: self.examples] @ vectors[self.examples :].T
        own = (np.arange(self.examples), self._expected)
        behind = np.where(np.isfinite(cosines[own]), cosines[own] - _TIE, _NOWHERE)
        cosines = np.where(np.isfinite(cosines), cosines, _NEAREST)
        cosines[own] = behind
        labels = np.arange(self._documents)

        def measured(examples: slice, k: int) -> float:
            return float(top_k_accuracy_score(self._expected[examples], cosines[examples], k=k, labels=labels))

        everything = slice(None)
        return tuple(
            mean_score(
                f"recall@{k}",
                measured(everything, k),
                k / self._documents,
                np.array([measured(slice(one, one + 1), k) for one in range(self.examples)]),
            )
            for k in _TOP
            if k < self._documents
        )
