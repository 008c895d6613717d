"""Encoder-decoder models: text to text, speech to text, image to text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import transformers

from zoo import TinyModel, randomise
from zoo.tokenizer import VOCABULARY, write_tokenizer

_TOKENS = {"vocab_size": len(VOCABULARY), "pad_token_id": 0, "bos_token_id": 5, "eos_token_id": 6}
# BART and its kin: names of their own for every size.
_TWO_TOWERS: Mapping[str, Any] = {
    **_TOKENS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "decoder_start_token_id": 2,
}
# Heads of another size than d_model / num_heads: T5 allows it, and nothing may compute one from the other.
_T5: Mapping[str, Any] = {
    **_TOKENS,
    "d_model": 32,
    "d_kv": 12,
    "d_ff": 64,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
    "decoder_start_token_id": 0,
}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "t5": _T5,
    "mt5": {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "bart": _TWO_TOWERS,
    "mbart": _TWO_TOWERS,
    "marian": {**_TWO_TOWERS, "decoder_vocab_size": len(VOCABULARY)},
    "m2m_100": {**_TWO_TOWERS, "scale_embedding": True},
    "pegasus": _TWO_TOWERS,
}


def write_text_model(model_type: str, folder: Path, **settings: Any) -> None:
    """Writes a checkpoint that makes text of text, and its tokenizer."""
    config = transformers.AutoConfig.for_model(model_type, **{**SETTINGS[model_type], **settings})
    model = randomise(transformers.AutoModelForSeq2SeqLM.from_config(config))
    model.save_pretrained(folder)
    write_tokenizer(folder, token_types=False)


ROWS = tuple(
    TinyModel(model_type, "text2text-generation", partial(write_text_model, model_type)) for model_type in SETTINGS
)
