"""automatic-speech-recognition by CTC: WAV files and what is said in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.datasets import Dataset
from onnxport.exporters.errors import DatasetError
from onnxport.exporters.preprocessing import load_tokenizer
from onnxport.exporters.task_metrics.classification import NONE, predicted
from onnxport.exporters.task_metrics.file_features import FileBatches
from onnxport.exporters.task_metrics.metric import Batch, Score, mean_score
from onnxport.exporters.task_metrics.single_label import OUTPUT
from onnxport.exporters.task_metrics.sounds import FILES, Sounds
from onnxport.exporters.task_metrics.text_features import single_component

_TEXT = ("text", "transcript", "transcription", "sentence")


class SpeechRecognition:
    """1 - WER: the share of words that are right, less those that were made up. Compared as they are written.

    Raises:
        DatasetError: a column is missing, a text has no words, the bundle has no tokenizer, or as `Sounds`.
    """

    def __init__(self, bundle: Bundle, dataset: Dataset) -> None:
        files, self._texts = dataset.files(FILES, "sounds"), dataset.texts(_TEXT, "texts")
        component = single_component(bundle)
        if not any(spec.name == OUTPUT for spec in component.outputs):
            raise DatasetError(
                f"the graph has no {OUTPUT}; a data set is for models that give letters for frames (CTC)"
            )
        empty = next((number for number, text in enumerate(self._texts, 1) if not text.split()), None)
        if empty is not None:
            raise DatasetError(f"{dataset.name}, example {empty}: the text has no words; drop the row")
        self._tokenizer = load_tokenizer(bundle.path, trust_remote_code=False)
        if self._tokenizer is None:
            raise DatasetError(f"{bundle.path} has no tokenizer, which the letters of {dataset.name} need")
        self.batches = FileBatches(component, files, Sounds(bundle).make, together=False)
        self.examples = len(files)

    def read(self, outputs: Mapping[str, np.ndarray], batch: Batch) -> Sequence[Any]:
        assert self._tokenizer is not None
        frames = [predicted(row) for row in outputs[OUTPUT][: len(batch.items)]]
        # The tokenizer makes one letter of its repetitions, and nothing of the blank. NaN says nothing at all.
        return ["" if (row == NONE).any() else str(self._tokenizer.decode(row)) for row in frames]

    def scores(self, answers: Sequence[Any]) -> tuple[Score, ...]:
        import jiwer

        words = np.array([len(text.split()) for text in self._texts], dtype=np.float64)
        right = np.array([1 - jiwer.wer(text, answer) for text, answer in zip(self._texts, answers, strict=True)])
        value = 1 - jiwer.wer(list(self._texts), list(answers))
        return (mean_score("1 - WER", float(value), 0.0, right * words, words),)
