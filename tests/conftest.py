"""Small real checkpoints made in code: weights N(0, 0.3), so that outputs are large enough to test anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
import transformers

from zoo import randomise
from zoo.tokenizer import VOCABULARY, write_tokenizer

HEADS = {
    "feature-extraction": "AutoModel",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "fill-mask": "AutoModelForMaskedLM",
    "multiple-choice": "AutoModelForMultipleChoice",
}
ROBERTA_LIKE = {"pad_token_id": 1, "max_position_embeddings": 66, "type_vocab_size": 1}
SETTINGS: dict[str, dict[str, object]] = {
    "bert": {},
    "distilbert": {"dim": 32, "n_heads": 4, "n_layers": 2, "hidden_dim": 64},
    "roberta": ROBERTA_LIKE,
    "xlm-roberta": ROBERTA_LIKE,
    "camembert": ROBERTA_LIKE,
    "electra": {"embedding_size": 16},
    "albert": {"embedding_size": 16},
    "mpnet": {"pad_token_id": 1, "max_position_embeddings": 66},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
    "modernbert": {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3,
                   "local_attention": 8, "global_attn_every_n_layers": 2},
}  # fmt: skip


CheckpointMaker = Callable[..., Path]


@pytest.fixture(scope="session")
def make_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> CheckpointMaker:
    """make_checkpoint("bert", "fill-mask") -> folder; extra keywords go to the config. Made once per arguments."""
    made: dict[str, Path] = {}

    def make(
        model_type: str = "bert",
        task: str = "feature-extraction",
        *,
        tokenizer: bool = True,
        token_types: bool = True,
        **settings: object,
    ) -> Path:
        key = repr((model_type, task, tokenizer, token_types, sorted(settings.items(), key=str)))
        if key in made:
            return made[key]
        sizes: dict[str, object] = {
            "vocab_size": len(VOCABULARY),
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "max_position_embeddings": 64,
            "pad_token_id": 0,
        }
        config_class = type(transformers.AutoConfig.for_model(model_type))
        given = {**sizes, **SETTINGS[model_type], **settings}
        if model_type == "distilbert":
            given = {
                k: v
                for k, v in given.items()
                if k in inspect.signature(config_class.__init__).parameters
                or k
                in ("vocab_size", "dim", "n_heads", "n_layers", "hidden_dim", "max_position_embeddings", "pad_token_id")
            }
        config = config_class(**given)
        model = randomise(getattr(transformers, HEADS[task]).from_config(config))
        folder = tmp_path_factory.mktemp(f"{model_type}-{task}")
        model.save_pretrained(folder)
        if tokenizer:
            pad = "[PAD]" if given.get("pad_token_id", 0) == 0 else VOCABULARY[int(str(given["pad_token_id"]))]
            write_tokenizer(folder, token_types=token_types, pad=pad)
        return made.setdefault(key, folder)

    return make


@pytest.fixture
def plain_modules(monkeypatch: pytest.MonkeyPatch) -> str:
    """Makes tests/plain_modules.py importable and returns its name, for sources like "plain_modules:tagger"."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return "plain_modules"
