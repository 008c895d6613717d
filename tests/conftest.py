"""Small real checkpoints made in code: weights N(0, 0.3), so that outputs are large enough to test anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>"]
VOCABULARY += [*"abcdefghijklmnopqrstuvwxyz0123456789.,?!", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789")]
VOCABULARY += ["the", "graph", "runtime", "was", "and", "in", "same", "who", "won", "meeting"]

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


def randomise(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Draws every parameter from N(0, 0.3); normalisation weights from N(1, 0.3)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
            if "norm" in name.lower() and name.endswith("weight"):
                parameter.add_(1.0)
    return module.eval()


def write_tokenizer(folder: Path, *, token_types: bool = True, pad: str = "[PAD]") -> None:
    """A real WordPiece tokenizer over letters and a few words."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    ids = {token: i for i, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    names = ["input_ids", *(["token_type_ids"] if token_types else []), "attention_mask"]
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
        model_input_names=names,
    ).save_pretrained(folder)


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
