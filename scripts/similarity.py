"""Compares a few sentences with a sentence-embedding bundle: numpy, onnxruntime and tokenizers, no torch."""

from __future__ import annotations

import sys

import numpy as np
from tokenizers import Tokenizer

from onnxport.exporters import load_bundle

SENTENCES = (
    "How do I reset my password?",
    "I forgot the login for my account.",
    "The train to Hamburg leaves at noon.",
    "When does the next train depart?",
)


def embed(folder: str, sentences: tuple[str, ...]) -> np.ndarray:
    """Returns float32 [sentences, hidden], normalised."""
    bundle = load_bundle(folder)
    session = bundle.session("optimized")
    outputs = [o.name for o in session.get_outputs()]
    if "sentence_embedding" not in outputs:
        sys.exit(
            f"{folder} gives {', '.join(outputs)}, and no sentence_embedding; give a bundle of a sentence-transformers "
            "checkpoint (onnxport export --task sentence-similarity)"
        )
    tokenizer = Tokenizer.from_file(str(bundle.path / "tokenizer.json"))
    length = bundle.manifest.preprocessing.max_length
    if length is not None:  # tokenizer.json may carry the length of whoever saved it last
        tokenizer.enable_truncation(length)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(list(sentences))
    tensors = {
        "input_ids": np.array([e.ids for e in encoded], dtype=np.int64),
        "attention_mask": np.array([e.attention_mask for e in encoded], dtype=np.int64),
        "token_type_ids": np.array([e.type_ids for e in encoded], dtype=np.int64),
    }
    wanted = {i.name: tensors[i.name] for i in session.get_inputs()}
    (embeddings,) = session.run(["sentence_embedding"], wanted)
    return embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: scripts/similarity.py BUNDLE")
    embeddings = embed(sys.argv[1], SENTENCES)
    assert "torch" not in sys.modules
    for sentence, row in zip(SENTENCES, embeddings @ embeddings.T, strict=True):
        print(" ".join(f"{cosine:6.3f}" for cosine in row), "", sentence)


if __name__ == "__main__":
    main()
