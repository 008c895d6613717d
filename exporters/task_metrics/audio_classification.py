"""audio-classification: a folder with a sub-folder of WAV files for each label."""

from __future__ import annotations

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.datasets import Dataset
from onnxport.exporters.task_metrics.file_features import FileBatches
from onnxport.exporters.task_metrics.single_label import SingleLabel, read_labels
from onnxport.exporters.task_metrics.sounds import FILES, Sounds
from onnxport.exporters.task_metrics.text_features import single_component


class AudioClassification(SingleLabel):
    """Accuracy and macro F1 of the predicted classes.

    Raises:
        DatasetError: as `read_labels` and `Sounds`.
    """

    def __init__(self, bundle: Bundle, dataset: Dataset) -> None:
        files = dataset.files(FILES, "sounds")
        labels = read_labels(bundle, dataset)
        super().__init__(labels, FileBatches(single_component(bundle), files, Sounds(bundle).make, together=False))
