"""audio-classification: a folder with a sub-folder of WAV files for each label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.datasets import Dataset
from onnxport.exporters.task_metrics.classification import accuracy, macro_f1, predicted
from onnxport.exporters.task_metrics.file_features import FileBatches
from onnxport.exporters.task_metrics.metric import Batch, Score
from onnxport.exporters.task_metrics.sounds import FILES, Sounds
from onnxport.exporters.task_metrics.text_classification import OUTPUT, read_labels
from onnxport.exporters.task_metrics.text_features import single_component


class AudioClassification:
    """Accuracy and macro F1 of the predicted classes.

    Raises:
        DatasetError: as `TextClassification` and `Sounds`.
    """

    def __init__(self, bundle: Bundle, dataset: Dataset) -> None:
        files = dataset.files(FILES, "sounds")
        self._labels = read_labels(bundle, dataset)
        self.batches = FileBatches(single_component(bundle), files, Sounds(bundle).make, together=False)
        self.examples = len(files)

    def read(self, outputs: Mapping[str, np.ndarray], batch: Batch) -> Sequence[Any]:
        return list(predicted(outputs[OUTPUT][: len(batch.items)]))

    def scores(self, answers: Sequence[Any]) -> tuple[Score, ...]:
        found = [np.array([answer]) for answer in answers]
        return accuracy(self._labels, found), macro_f1(self._labels, found)
