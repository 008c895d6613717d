"""image-classification: a folder with a sub-folder of pictures for each label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.datasets import Dataset
from onnxport.exporters.errors import DatasetError
from onnxport.exporters.preprocessing import load_image_processor
from onnxport.exporters.task_metrics.file_features import FileBatches
from onnxport.exporters.task_metrics.single_label import SingleLabel, read_labels
from onnxport.exporters.task_metrics.text_features import single_component
from onnxport.verify.runners import one_line

_FILES = ("image", "path")


class ImageClassification(SingleLabel):
    """Accuracy and macro F1 of the predicted classes.

    Raises:
        DatasetError: as `read_labels`; a file is no picture; the bundle has no image processor.
        SourceError: the bundle's image processor cannot be loaded.
    """

    def __init__(self, bundle: Bundle, dataset: Dataset) -> None:
        files = dataset.files(_FILES, "pictures")
        labels = read_labels(bundle, dataset)
        self._processor = load_image_processor(bundle.path, trust_remote_code=False)
        if self._processor is None:
            raise DatasetError(f"{bundle.path} has no preprocessor_config.json, which says how pictures become inputs")
        for file in files:
            _open(file).close()
        super().__init__(labels, FileBatches(single_component(bundle), files, self._make, together=True))

    def _make(self, file: Path) -> dict[str, np.ndarray]:
        assert self._processor is not None
        try:
            with _open(file) as picture:
                made = self._processor(images=[picture.convert("RGB")], return_tensors="np")
        except Exception as e:
            raise DatasetError(f"{file} does not become an input: {type(e).__name__}: {one_line(e)}") from e
        return {str(name): np.asarray(array) for name, array in made.items()}


def _open(file: Path) -> Any:
    """Reads the head of a picture; its pixels come later."""
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(file)
    except (UnidentifiedImageError, OSError) as e:
        raise DatasetError(f"{file} is no picture that Pillow reads: {one_line(e)}; remove it") from e
