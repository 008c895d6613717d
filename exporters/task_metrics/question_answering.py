"""question-answering: a question, a text that holds the answer, and one or more right answers."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.datasets import Dataset
from onnxport.exporters.errors import DatasetError
from onnxport.exporters.task_metrics.metric import Batch, Score, mean_score
from onnxport.exporters.task_metrics.text_features import TextFeatures

_QUESTION = ("question",)
_CONTEXT = ("context",)
_ANSWERS = ("answers", "answer")
_LONGEST_ANSWER = 30  # tokens, as in transformers' example for SQuAD


class QuestionAnswering:
    """Exact match and F1 of the answers, as SQuAD defines them. Contexts are cut to what the model takes at once.

    Raises:
        DatasetError: a column is missing, or an answer is no text.
    """

    def __init__(self, bundle: Bundle, dataset: Dataset) -> None:
        questions, self._contexts = dataset.texts(_QUESTION, "questions"), dataset.texts(_CONTEXT, "contexts")
        values = dataset.column(_ANSWERS, "answers")
        self._answers = [_texts(value, f"{dataset.name}, example {n}") for n, value in enumerate(values, 1)]
        features = TextFeatures(bundle, dataset.name)
        pairs = list(zip(questions, self._contexts, strict=True))
        self._encodings = features.encode(pairs, cut="only_second")
        self.batches = features.batches(self._encodings)
        self.examples = len(pairs)

    def read(self, outputs: Mapping[str, np.ndarray], batch: Batch) -> Sequence[Any]:
        return [
            self._answer(item, outputs["start_logits"][row, real], outputs["end_logits"][row, real])
            for row, (item, real) in enumerate(zip(batch.items, batch.real, strict=True))
        ]

    def scores(self, answers: Sequence[Any]) -> tuple[Score, ...]:
        exact = np.array([_exact(a, right) for a, right in zip(answers, self._answers, strict=True)])
        overlap = np.array([_f1(a, right) for a, right in zip(answers, self._answers, strict=True)])
        return (
            mean_score("exact match", float(exact.mean()), 0.0, exact),
            mean_score("F1", float(overlap.mean()), 0.0, overlap),
        )

    def _answer(self, item: int, start: np.ndarray, end: np.ndarray) -> str | None:
        """Returns the text between the start and the end that have the highest sum; None: NaN, which says nothing."""
        encoding = self._encodings[item]
        positions = [at for at, part in enumerate(encoding.sequence_ids) if part == 1]
        if np.isnan(start).any() or np.isnan(end).any():
            return None
        if not positions:
            return ""
        sums = start[positions][:, None] + end[positions][None, :]
        apart = np.subtract.outer(np.arange(len(positions)), np.arange(len(positions)))  # start - end
        sums = np.where((apart <= 0) & (apart > -_LONGEST_ANSWER), sums, -np.inf)
        first, last = np.unravel_index(sums.argmax(), sums.shape)
        begin, stop = encoding.offsets[positions[first]][0], encoding.offsets[positions[last]][1]
        return self._contexts[item][begin:stop]


def _texts(value: Any, where: str) -> list[str]:
    """An answer, a list of them, or SQuAD's own form: {"text": [...], "answer_start": [...]}."""
    if isinstance(value, dict):
        value = value.get("text")
    found = value if isinstance(value, list) else [value]
    if not found or not all(isinstance(one, str) and one for one in found):
        raise DatasetError(f"{where}: the answers are {value!r}; expected a text or several, at least one")
    return found


def _normalised(text: str) -> str:
    """SQuAD compares words in lower case, without punctuation and English articles."""
    bare = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def _exact(answer: str | None, right: Sequence[str]) -> float:
    return float(answer is not None and any(_normalised(answer) == _normalised(one) for one in right))


def _f1(answer: str | None, right: Sequence[str]) -> float:
    return 0.0 if answer is None else max(_word_f1(_normalised(answer), _normalised(one)) for one in right)


def _word_f1(answer: str, right: str) -> float:
    """F1 of two bags of words: the second "the" of a text is a label of its own, and so bags become sets."""
    from sklearn.metrics import f1_score
    from sklearn.preprocessing import MultiLabelBinarizer

    bags = [_counted_words(answer), _counted_words(right)]
    if not all(bags):
        return float(bags[0] == bags[1])
    # One class alone would be taken for a question of yes or no, so there is one that neither has.
    found, expected = MultiLabelBinarizer(classes=[*sorted(bags[0] | bags[1]), ("", 0)]).fit_transform(bags)
    return float(f1_score([expected], [found], average="samples"))


def _counted_words(text: str) -> set[tuple[str, int]]:
    return {(word, number) for word, count in Counter(text.split()).items() for number in range(count)}
