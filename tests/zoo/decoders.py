"""Tiny decoder-only checkpoints that generate text."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import transformers

from zoo import TinyModel, randomise
from zoo.tokenizer import VOCABULARY, write_tokenizer

# A head size of hidden size over heads, as Optimum takes it for granted.
_LLAMA_LIKE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 96,
}
_GPT_LIKE: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96}
_EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_SETTINGS: dict[str, dict[str, Any]] = {
    "gpt2": _GPT_LIKE,
    "gpt_neo": {
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 6,
        "max_position_embeddings": 96,
    },
    "llama": _LLAMA_LIKE,
    "mistral": {**_LLAMA_LIKE, "sliding_window": 12},
    "qwen2": _LLAMA_LIKE,
    "qwen3": _LLAMA_LIKE,
    "gemma": _LLAMA_LIKE,
    "gemma2": {**_LLAMA_LIKE, "sliding_window": 12},
    "gemma3_text": {
        **_LLAMA_LIKE,
        "sliding_window": 12,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "phi": {**_LLAMA_LIKE, "num_key_value_heads": 4},
    "phi3": {**_LLAMA_LIKE, "original_max_position_embeddings": 96},
    "olmo2": _LLAMA_LIKE,
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "falcon": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 96,
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
    },
    "opt": {
        "hidden_size": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "word_embed_proj_dim": 32,
        "max_position_embeddings": 96,
    },
    "mixtral": {**_LLAMA_LIKE, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {**_LLAMA_LIKE, **_EXPERTS},
    "gpt_oss": {**_LLAMA_LIKE, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 12},
    "deepseek_v3": {
        **_LLAMA_LIKE,
        **_EXPERTS,
        "num_key_value_heads": 4,
        "head_dim": 4,
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "q_lora_rank": 16,
        "kv_lora_rank": 8,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
    },
    "cohere2": {**_LLAMA_LIKE, "sliding_window": 12},
    "glm4": _LLAMA_LIKE,
    "ernie4_5": _LLAMA_LIKE,
    "granite": _LLAMA_LIKE,
    "smollm3": _LLAMA_LIKE,
    "starcoder2": {**_LLAMA_LIKE, "sliding_window": 12},
    "stablelm": _LLAMA_LIKE,
    "nemotron": _LLAMA_LIKE,
    "apertus": _LLAMA_LIKE,
    "gpt_neox": {key: value for key, value in _LLAMA_LIKE.items() if key not in ("head_dim", "num_key_value_heads")},
    "gptj": {**_GPT_LIKE, "rotary_dim": 4},
    "gpt_bigcode": _GPT_LIKE,
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 96},
}
# transformers 5 reads any tokenizer.json of theirs as one of its own class, which this WordPiece is not.
_OWN_TOKENIZER = {"qwen2"}
_NOTES = {
    "gpt_neo": "a layer that looks back 6 positions",
    "mistral": "looks back 12 positions",
    "gemma2": "a layer that looks back 12 positions",
    "gemma3_text": "a layer that looks back 12 positions",
    "llama": "grouped heads",
    "qwen2": "without a tokenizer",
    "mixtral": "a mixture of 4 experts",
    "qwen3_moe": "a mixture of 4 experts",
    "gpt_oss": "a mixture of 4 experts, a layer that looks back 12 positions",
    "deepseek_v3": "a mixture of 4 experts; keys and values of different sizes",
    "cohere2": "a layer that looks back 12 positions",
    "starcoder2": "looks back 12 positions",
    "mpt": "positions by alibi",
    "gpt_bigcode": "one key and value for all heads",
}


def _write(folder: Path, *, model_type: str) -> None:
    settings = {**_SETTINGS[model_type], "vocab_size": len(VOCABULARY), "pad_token_id": 0, "bos_token_id": 2}
    config = transformers.AutoConfig.for_model(model_type, **settings, eos_token_id=3)
    # With other seeds some of these models say one token over and over, whatever they have read.
    model = randomise(transformers.AutoModelForCausalLM.from_config(config), seed=2)
    model.save_pretrained(folder)
    if model_type not in _OWN_TOKENIZER:
        write_tokenizer(folder, token_types=False, padding_side="left")


ROWS = tuple(
    TinyModel(model_type, "text-generation", partial(_write, model_type=model_type), note=_NOTES.get(model_type, ""))
    for model_type in _SETTINGS
)
