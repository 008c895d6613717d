"""Models that read more than one kind of input: dual encoders, documents, questions about images, prompts for masks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformers

from zoo import TinyModel, randomise
from zoo.tokenizer import VOCABULARY, write_tokenizer

_TEXT: dict[str, Any] = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}


def _write_clip(folder: Path) -> None:
    # The position at which a text ends is where CLIP reads it off: [SEP] is what ends one here.
    ends = {"bos_token_id": 2, "eos_token_id": 3}
    config = transformers.CLIPConfig(
        text_config={**_TEXT, **ends}, vision_config=_VISION, projection_dim=24, logit_scale_init_value=1.0
    )
    _write(transformers.CLIPModel(config), folder, token_types=False)
    transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(
        folder
    )


def _write(model: Any, folder: Path, *, token_types: bool) -> None:
    randomise(model)
    model.save_pretrained(folder)
    write_tokenizer(folder, token_types=token_types)


ROWS = (
    TinyModel("clip", "zero-shot-image-classification", _write_clip),
    TinyModel("clip", "feature-extraction", _write_clip, {"task": "feature-extraction"}),
)
