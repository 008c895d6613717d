"""Text encoders."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import transformers

from zoo import TinyModel, randomise
from zoo.tokenizer import VOCABULARY, write_tokenizer

HEADS = {
    "feature-extraction": "AutoModel",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "fill-mask": "AutoModelForMaskedLM",
    "multiple-choice": "AutoModelForMultipleChoice",
}
_SIZES: dict[str, Any] = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_ROBERTA_LIKE = {"pad_token_id": 1, "max_position_embeddings": 66, "type_vocab_size": 1}
SETTINGS: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 32, "n_heads": 4, "n_layers": 2, "hidden_dim": 64, "max_position_embeddings": 64},
    "roberta": _ROBERTA_LIKE,
    "xlm-roberta": _ROBERTA_LIKE,
    "camembert": _ROBERTA_LIKE,
    "electra": {"embedding_size": 16},
    "albert": {"embedding_size": 16},
    "mpnet": {"pad_token_id": 1, "max_position_embeddings": 66},
    "deberta": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
    "modernbert": {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3,
                   "local_attention": 8, "global_attn_every_n_layers": 2},
    "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "pad_token_id": 0},
    "big_bird": {"attention_type": "original_full", "block_size": 4, "num_random_blocks": 1},
    "longformer": {**_ROBERTA_LIKE, "attention_window": 8},
    "esm": {"pad_token_id": 0, "mask_token_id": 4, "position_embedding_type": "rotary", "token_dropout": True},
    "mobilebert": {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    "convbert": {"embedding_size": 32, "conv_kernel_size": 3, "head_ratio": 2},
    "squeezebert": {"embedding_size": 32},
    "data2vec-text": _ROBERTA_LIKE,
    "xlm-roberta-xl": _ROBERTA_LIKE,
    "luke": {**_ROBERTA_LIKE, "entity_vocab_size": 8, "entity_emb_size": 16},
    "xlm": {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "n_words": len(VOCABULARY), "pad_index": 0, "n_langs": 1},
    "flaubert": {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "n_words": len(VOCABULARY), "pad_index": 0},
}  # fmt: skip
_OTHER_NAMES = {"distilbert", "xlnet", "xlm", "flaubert"}
_NO_TOKEN_TYPES = {"distilbert", "mpnet", "modernbert", "esm", "longformer"}


def write(
    model_type: str,
    task: str,
    folder: Path,
    *,
    tokenizer: bool = True,
    token_types: bool | None = None,
    **changes: Any,
) -> None:
    """Writes a checkpoint of that model type with a head for the task, and its tokenizer.

    `token_types`: whether the tokenizer emits them; None: where the model knows any. `changes` go to the config.
    """
    settings = {**_SIZES, **SETTINGS.get(model_type, {}), **changes}
    config_class = type(transformers.AutoConfig.for_model(model_type))
    if model_type in _OTHER_NAMES:  # their attribute maps would take hidden_size for dim, and be given both
        settings = {**{key: _SIZES[key] for key in ("vocab_size", "pad_token_id")}, **SETTINGS[model_type], **changes}
    model = randomise(getattr(transformers, HEADS[task]).from_config(config_class(**settings)))
    model.save_pretrained(folder)
    if tokenizer:
        emitted = model_type not in _NO_TOKEN_TYPES if token_types is None else token_types
        write_tokenizer(folder, token_types=emitted, pad=VOCABULARY[settings["pad_token_id"]])


def _row(model_type: str, task: str, **recipe: Any) -> TinyModel:
    return TinyModel(model_type, task, partial(write, model_type, task), recipe)


ROWS = (
    _row("bert", "text-classification"),
    _row("bert", "multiple-choice"),
    _row("distilbert", "text-classification"),
    _row("roberta", "fill-mask"),
    _row("xlm-roberta", "token-classification"),
    _row("electra", "question-answering"),
    _row("albert", "fill-mask"),
    _row("camembert", "token-classification"),
    _row("mpnet", "feature-extraction"),
    _row("deberta", "text-classification"),
    _row("deberta-v2", "text-classification"),
    _row("modernbert", "fill-mask"),
    _row("xlnet", "text-classification"),
    _row("big_bird", "fill-mask"),
    # Longer than all that its attention looks at: the model takes the full one for good at shorter inputs.
    TinyModel(
        "big_bird (block_sparse)",
        "text-classification",
        partial(write, "big_bird", "text-classification", attention_type="block_sparse"),
        {"static": {"sequence": 44}},
    ),
    _row("longformer", "fill-mask"),
    _row("longformer", "text-classification"),
    _row("esm", "feature-extraction"),
    _row("mobilebert", "text-classification"),
    _row("convbert", "token-classification"),
    _row("squeezebert", "question-answering"),
    _row("ernie", "text-classification"),
    _row("rembert", "fill-mask"),
    _row("roformer", "token-classification"),
    _row("megatron-bert", "question-answering"),
    _row("nystromformer", "text-classification"),
    _row("eurobert", "fill-mask"),
    _row("nomic_bert", "feature-extraction"),
    _row("jina_embeddings_v3", "feature-extraction"),
    _row("data2vec-text", "text-classification"),
    _row("xlm-roberta-xl", "fill-mask"),
    _row("luke", "feature-extraction"),
    _row("fnet", "text-classification"),
    _row("xlm", "text-classification"),
    _row("flaubert", "feature-extraction"),
)
