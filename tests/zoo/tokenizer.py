"""A real tokenizer for tiny checkpoints of text models."""

from __future__ import annotations

from pathlib import Path

import transformers

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>"]
VOCABULARY += [*"abcdefghijklmnopqrstuvwxyz0123456789.,?!", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789")]
VOCABULARY += ["the", "graph", "runtime", "was", "and", "in", "same", "who", "won", "meeting"]


def write_tokenizer(folder: Path, *, token_types: bool = True, pad: str = "[PAD]", padding_side: str = "right") -> None:
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
        padding_side=padding_side,
    ).save_pretrained(folder)
