"""Texts to batches for a bundle's graph, by the `tokenizers` library alone and the settings in the bundle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.errors import DatasetError
from onnxport.exporters.manifest import Component
from onnxport.exporters.task_metrics.metric import Batch
from onnxport.exporters.tokenizer_settings import read_settings
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, Dim
from onnxport.verify.runners import one_line
from onnxport.verify.tokenizer_record import TokenizerSettings, load_tokenizer_record

_BATCH = 16
_COLUMNS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
"""Input of a graph to the attribute of an encoding that it takes."""


class TextFeatures:
    """Makes the inputs of a bundle's graph.

    Args:
        bundle: its tokenizer.json and settings are used.
        dataset: what messages call the data set.

    Raises:
        DatasetError: the bundle has no tokenizer.json, several graphs, or a graph with inputs that no text gives.
        BundleError, VerificationError: its tokenizer files are malformed.
    """

    def __init__(self, bundle: Bundle, dataset: str) -> None:
        from tokenizers import Tokenizer

        self.component = single_component(bundle)
        self._dataset = dataset
        path = bundle.path / "tokenizer.json"
        if not path.is_file():
            raise DatasetError(
                f"{bundle.path} has no tokenizer.json, which the texts of {dataset} need; export from a checkpoint "
                "with a tokenizer"
            )
        unknown = [spec.name for spec in self.component.inputs if spec.name not in _COLUMNS]
        if unknown or any(len(spec.shape) != 2 for spec in self.component.inputs):
            names = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in self.component.inputs)
            raise DatasetError(f"the graph takes {names}; a text gives {', '.join(_COLUMNS)} of [batch, sequence]")
        record = bundle.manifest.verification.tokenizer
        recorded = load_tokenizer_record(bundle.path / record).settings if record else TokenizerSettings()
        self.settings = read_settings(bundle.path, recorded)
        try:
            self.tokenizer = Tokenizer.from_file(str(path))
        except Exception as e:  # the library raises bare Exception
            raise DatasetError(f"{path} cannot be read: {one_line(e)}; copy the whole bundle again") from e
        self.tokenizer.no_padding()
        batch, sequence = self.component.inputs[0].shape
        self._rows, self._tokens = axis_range(self.component, batch), axis_range(self.component, sequence)
        limits = (self.settings.max_length, bundle.manifest.preprocessing.max_length, self._tokens.max)
        self.max_length = min((limit for limit in limits if limit is not None), default=None)

    def encode(self, texts: Sequence[Any], *, words: bool = False, cut: str = "longest_first") -> list[Any]:
        """Returns an encoding of the `tokenizers` library for each text, cut to what the graph takes.

        Args:
            texts: texts or pairs of texts.
            words: the texts are lists of words.
            cut: which text of a pair is cut: "longest_first" or "only_second".

        Raises:
            DatasetError: a text cannot be encoded.
        """
        self.tokenizer.no_truncation()
        if self.max_length is not None:
            self.tokenizer.enable_truncation(self.max_length, strategy=cut, direction=self.settings.truncation_side)
        try:
            return list(self.tokenizer.encode_batch(list(texts), is_pretokenized=words))
        except Exception as e:  # the library raises bare Exception
            raise DatasetError(f"{self._dataset} cannot be tokenized: {one_line(e)}") from e

    def batches(self, encodings: Sequence[Any]) -> list[Batch]:
        """Returns all encodings, those of like length together.

        Raises:
            DatasetError: a text has no tokens, or does not fill what the graph takes and cannot be padded.
        """
        for number, encoding in enumerate(encodings, 1):
            if not len(encoding):
                raise DatasetError(f"{self._dataset}: text {number} has no tokens; drop it")
        size = min(_BATCH if self._can_pad else 1, self._rows.max or _BATCH)
        order = sorted(range(len(encodings)), key=lambda item: len(encodings[item]))
        groups = [tuple(order[start : start + size]) for start in range(0, len(order), size)]
        return [self._batch(group, [encodings[item] for item in group]) for group in groups]

    @property
    def _can_pad(self) -> bool:
        """Without a mask in the graph, padding would be read as text."""
        return self._pad_id is not None and any(spec.name == "attention_mask" for spec in self.component.inputs)

    @property
    def _pad_id(self) -> int | None:
        pad = self.settings.pad_token
        found: int | None = None if pad is None else self.tokenizer.token_to_id(pad)
        return found

    def _batch(self, items: tuple[int, ...], encodings: Sequence[Any]) -> Batch:
        length = max(self._tokens.min, *(len(encoding) for encoding in encodings))
        if any(len(encoding) != length for encoding in encodings) and not self._can_pad:
            raise DatasetError(
                f"{self._dataset}: the graph takes {length} tokens, and text {items[0] + 1} has {len(encodings[0])}; "
                "it cannot be padded, as there is no padding token or no attention_mask"
            )
        left = self.settings.padding_side == "left"
        real = tuple(slice(length - len(e), length) if left else slice(0, len(e)) for e in encodings)
        rows = max(len(items), self._rows.min)
        inputs = {}
        for spec in self.component.inputs:
            fill = self._pad_id if spec.name == "input_ids" and self._pad_id is not None else 0
            values = np.full((rows, length), fill, dtype=spec.dtype)
            for row in range(rows):
                encoding = encodings[min(row, len(encodings) - 1)]
                values[row, real[min(row, len(encodings) - 1)]] = getattr(encoding, _COLUMNS[spec.name])
            inputs[spec.name] = values
        return Batch(Case(f"{self._dataset} {items[0] + 1}", inputs), items, real)


def single_component(bundle: Bundle) -> Component:
    """Returns the only graph of a bundle.

    Raises:
        DatasetError: there are several.
    """
    if len(bundle.manifest.components) > 1:
        raise DatasetError(
            f"{bundle.path} has the graphs {', '.join(bundle.manifest.components)}; a data set can be put to models of "
            "one graph only"
        )
    return bundle.component()


def axis_range(component: Component, dim: Dim) -> AxisRange:
    """Returns the sizes that a dimension of a graph may have."""
    if isinstance(dim, int):
        return AxisRange(min=dim, max=dim)
    return component.axes.get(dim, AxisRange())
