"""fill-mask: a text with one masked token, and the token that belongs there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.datasets import Dataset
from onnxport.exporters.errors import DatasetError
from onnxport.exporters.task_metrics.classification import accuracy, predicted
from onnxport.exporters.task_metrics.metric import Batch, Score
from onnxport.exporters.task_metrics.single_label import LABEL, OUTPUT
from onnxport.exporters.task_metrics.text_classification import TEXT
from onnxport.exporters.task_metrics.text_features import TextFeatures
from onnxport.exporters.tokenizer_settings import read_mask_token


class FillMask:
    """Accuracy of the most likely token at the masked position.

    Raises:
        DatasetError: a column is missing, a text has no or several masked tokens, or a label is not one token.
    """

    def __init__(self, bundle: Bundle, dataset: Dataset) -> None:
        texts, words = dataset.texts(TEXT, "texts"), dataset.texts(LABEL, "labels")
        features = TextFeatures(bundle, dataset.name)
        mask = read_mask_token(bundle.path)
        mask_id = None if mask is None else features.tokenizer.token_to_id(mask)
        if mask_id is None:
            raise DatasetError(f"the tokenizer of {bundle.path} has no mask token; {dataset.name} cannot be put to it")
        encodings = features.encode(texts)
        self._places = []
        for number, encoding in enumerate(encodings, 1):
            places = [at for at, one in enumerate(encoding.ids) if one == mask_id]
            if len(places) != 1:
                raise DatasetError(
                    f"{dataset.name}, example {number}: {len(places)} masked tokens among the {len(encoding)} that the "
                    f"model takes; expected one {mask}"
                )
            self._places.append(places[0])
        self._right = [
            _ids(features.tokenizer, word, f"{dataset.name}, example {n}") for n, word in enumerate(words, 1)
        ]
        self.batches = features.batches(encodings)
        self.examples = len(texts)

    def read(self, outputs: Mapping[str, np.ndarray], batch: Batch) -> Sequence[Any]:
        return [
            int(predicted(outputs[OUTPUT][row, real][self._places[item]]))
            for row, (item, real) in enumerate(zip(batch.items, batch.real, strict=True))
        ]

    def scores(self, answers: Sequence[Any]) -> tuple[Score, ...]:
        expected = [np.array([ids[0]]) for ids in self._right]
        found = [np.array([ids[0] if a in ids else a]) for a, ids in zip(answers, self._right, strict=True)]
        return (accuracy(expected, found),)


def _ids(tokenizer: Any, word: str, where: str) -> tuple[int, ...]:
    """The token of a word; byte-level tokenizers have one for it at the start of a text, and one after a space."""
    found = [tokenizer.encode(text, add_special_tokens=False).ids for text in (word, f" {word}")]
    single = tuple(dict.fromkeys(ids[0] for ids in found if len(ids) == 1))
    if not single:
        raise DatasetError(f"{where}: the label {word!r} is {len(found[0])} tokens; expected one")
    return single
