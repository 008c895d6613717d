"""Writes a BERT checkpoint with random weights and a real WordPiece tokenizer, for measuring: no download, any size.

Weights are N(0, 0.03): wide enough that the outputs are no noise around zero, small enough that they stay finite.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_checkpoint(out: Path, *, layers: int, hidden: int, vocabulary: int) -> None:
    """Writes config, weights and tokenizer into the folder `out`; heads are 64 wide, as in BERT."""
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = BertModel(
        BertConfig(
            num_hidden_layers=layers,
            hidden_size=hidden,
            num_attention_heads=hidden // 64,
            intermediate_size=4 * hidden,
            vocab_size=vocabulary,
        )
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # A layer norm that scales by 0.03 would make every output the same, whatever the input.
            parameter.normal_(1.0 if name.endswith("LayerNorm.weight") else 0.0, 0.03)
    model.save_pretrained(out)
    words = [*SPECIAL, *(f"word{number}" for number in range(vocabulary - len(SPECIAL)))]
    tokenizer = BertWordPieceTokenizer({word: number for number, word in enumerate(words)})
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer._tokenizer,
        model_max_length=512,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=30522)
    arguments = parser.parse_args()
    write_checkpoint(arguments.out, layers=arguments.layers, hidden=arguments.hidden, vocabulary=arguments.vocabulary)
