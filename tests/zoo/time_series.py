"""Models of time series."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import transformers

from zoo import TinyModel, randomise

CLASSES = {
    ("patchtst", "feature-extraction"): "PatchTSTModel",
    ("patchtst", "time-series-forecasting"): "PatchTSTForPrediction",
    ("patchtst", "time-series-classification"): "PatchTSTForClassification",
    ("patchtst", "time-series-regression"): "PatchTSTForRegression",
    ("patchtsmixer", "time-series-forecasting"): "PatchTSMixerForPrediction",
}
_SIZES: dict[str, Any] = {
    "num_input_channels": 3,
    "context_length": 32,
    "patch_length": 8,
    "patch_stride": 4,
    "prediction_length": 6,
    "d_model": 16,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "num_attention_heads": 4,
    "ffn_dim": 32,
    "num_targets": 2,
}


def write(model_type: str, task: str, folder: Path, **settings: Any) -> None:
    """Writes a checkpoint of that model type with a head for the task."""
    config = transformers.AutoConfig.for_model(model_type, **{**_SIZES, **settings})
    randomise(getattr(transformers, CLASSES[model_type, task])(config)).save_pretrained(folder)


# TorchScript unfolds PatchTST's patches along the wrong axis; dynamo writes the mean over patches from opset 18 on.
_OPSETS = {key: {"opset": 18} for key in CLASSES if key[0] == "patchtst" and key[1] != "feature-extraction"}
ROWS = tuple(
    TinyModel(model_type, task, partial(write, model_type, task), _OPSETS.get((model_type, task), {}))
    for model_type, task in CLASSES
)
