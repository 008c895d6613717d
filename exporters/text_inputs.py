"""Inputs for a model that reads tokens: samples of any size, and the verification cases made from them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxport.exporters.exportable import Arrays
from onnxport.verify.cases import Case
from onnxport.verify.contract import Vocabulary

MASK = "attention_mask"
KNOWN_INPUTS = ("input_ids", MASK, "token_type_ids")
"""Inputs this module can make."""

TEXTS = (
    "ONNX Runtime runs the same graph everywhere.",
    "A short one.",
    "Die Straße war naß, und der Zug nach Köln fiel aus: 3 Stunden Verspätung! (und kein Kaffee)",
    "日本語の文章と emoji 🙂 mixed with numbers 12,345.67",
)
_LANGUAGES = (
    "Le cœur a ses raisons que la raison ne connaît point.",
    "Привет, как дела?",
    "مرحبا بالعالم",
    "हिन्दी में एक वाक्य।",
    "今天天气很好我们去公园吧。",
    "한국어 문장입니다.",
    "שלום עולם",
)
_PAIRS = (
    ("Where was the meeting held?", "The meeting was held in Geneva, in the old town hall."),
    ("Who won?", "Nobody did; the match was called off because of the rain that had fallen since noon."),
)


@dataclass(frozen=True)
class TextInputs:
    """Makes token inputs.

    Attributes:
        names: the inputs of the graph, in order.
        axes: names of the axes of every input: batch and sequence, or batch, choices and sequence.
        vocab_size: token ids are below it.
        pad_token_id: what stands at padded positions.
        type_vocab_size: number of token types the model knows.
        max_length: longest sequence of the model in tokens, None if unknown.
        longest: longest sequence worth running in one case; at most max_length.
        static: axes with a fixed size.
        tokenizer: transformers' tokenizer, or None.
    """

    names: tuple[str, ...]
    axes: tuple[str, ...]
    vocab_size: int
    pad_token_id: int
    type_vocab_size: int
    max_length: int | None
    longest: int
    static: Mapping[str, int]
    tokenizer: Any = None

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        """Random ids (never the padding id), nothing masked, both token types where there are two."""
        shape = tuple(sizes[axis] for axis in self.axes)
        ids = rng.integers(0, self.vocab_size - 1, shape)
        ids += ids >= self.pad_token_id
        types = np.zeros(shape, dtype=np.int64)
        if self.type_vocab_size > 1:
            types[..., shape[-1] // 2 :] = 1
        known = {
            "input_ids": ids.astype(np.int64),
            MASK: np.ones(shape, dtype=np.int64),
            "token_type_ids": types,
        }
        return {name: known[name] for name in self.names}

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        """Of the inputs that hold ids, what they may hold."""
        known = {"input_ids": Vocabulary(size=self.vocab_size, padding=self.pad_token_id)}
        if self.type_vocab_size:
            known["token_type_ids"] = Vocabulary(size=self.type_vocab_size)
        return {name: known[name] for name in self.names if name in known}

    def cases(self, suite: str) -> list[Case]:
        """The cases of a suite, none of them at the traced size, smallest idea first.

        A case is the same in every suite that has it: its name is the seed.
        """
        cases = [*self._random(suite), *self._padded()]
        if suite != "quick":
            cases += self._odd_values()
        return _unique([*cases, *self._real_text(suite)])

    def _sizes(self, batch: int, sequence: int) -> dict[str, int]:
        asked = (batch, *[2] * (len(self.axes) - 2), min(sequence, self.longest))
        return {axis: self.static.get(axis, size) for axis, size in zip(self.axes, asked, strict=True)}

    def _random(self, suite: str) -> list[Case]:
        pairs = [(1, 1), (2, 8), (1, 23)]
        if suite != "quick":
            pairs += [(4, 5), (1, self.longest)]
        if suite == "full":
            pairs += [(1, 64), (8, 16), (2, 128)]
        cases = []
        for sizes in (self._sizes(batch, sequence) for batch, sequence in pairs):
            name = f"random.{'x'.join(str(sizes[axis]) for axis in self.axes)}"
            cases.append(self._case(name, self.sample(sizes, _rng(name))))
        return cases

    def _case(self, name: str, inputs: Arrays) -> Case:
        return Case(name, inputs, MASK if MASK in self.names else None)

    def _odd_values(self) -> list[Case]:
        """The ends of the allowed range, one id everywhere, and the last token type alone."""
        sizes = self._sizes(2, 8)
        inputs = {name: self.sample(sizes, _rng(name)) for name in ("ids.same", "ids.bounds", "types.last")}
        inputs["ids.same"]["input_ids"][...] = 0
        inputs["ids.bounds"]["input_ids"][...] = np.where(np.arange(sizes[self.axes[-1]]) % 2, self.vocab_size - 1, 0)
        if "token_type_ids" in self.names and self.type_vocab_size > 1:
            inputs["types.last"]["token_type_ids"][...] = self.type_vocab_size - 1
        else:
            del inputs["types.last"]
        return [self._case(name, arrays) for name, arrays in inputs.items()]

    def _padded(self) -> list[Case]:
        """Right, left and interleaved padding; in each, the second row keeps a single real token."""
        sizes = self._sizes(3, 16)
        length = sizes[self.axes[-1]]
        if MASK not in self.names or length < 2:
            return []
        real = max(length // 2, 1)
        shapes = {"right": np.arange(length) < real, "left": np.arange(length) >= length - real}
        shapes["interleaved"] = np.arange(length) % 3 != 1
        cases = []
        for kind, row in shapes.items():
            inputs = self.sample(sizes, _rng(f"padding.{kind}"))
            mask = inputs[MASK].reshape(-1, length)
            mask[0] = row
            if len(mask) > 1:
                mask[1] = np.eye(1, length, int(np.flatnonzero(row)[0]), dtype=np.int64)[0]
            inputs["input_ids"].reshape(-1, length)[mask == 0] = self.pad_token_id
            if "token_type_ids" in inputs:
                inputs["token_type_ids"].reshape(-1, length)[mask == 0] = 0
            cases.append(self._case(f"padding.{kind}", inputs))
        return cases

    def _real_text(self, suite: str) -> list[Case]:
        if self.tokenizer is None or (self.tokenizer.pad_token is None and self.axes[-1] in self.static):
            return []
        batch = self.static.get(self.axes[0])
        kinds: list[tuple[str, list[str], list[str] | None]] = [
            ("text", list(TEXTS), None),
            ("text.pairs", [question for question, _ in _PAIRS], [answer for _, answer in _PAIRS]),
        ]
        if suite == "full":
            special = [token for token in self.tokenizer.all_special_tokens if token != self.tokenizer.pad_token]
            kinds += [
                ("text.languages", list(_LANGUAGES), None),
                ("text.special", [f"tokens {' '.join(special)} in a text", "\U00013080 \U0001f9ff"], None),
            ]
        cases = []
        for name, texts, pairs in kinds:
            rows = batch or len(texts)
            if self.tokenizer.pad_token is None:  # rows of different lengths cannot be batched
                texts, pairs = texts[:1], pairs and pairs[:1]
            texts = [texts[i % len(texts)] for i in range(rows)]
            pairs = [pairs[i % len(pairs)] for i in range(rows)] if pairs else None
            # A tokenizer does not cut below its special tokens: what does not fit is no case of this model.
            room = self.static.get(self.axes[-1], self.longest)
            if room > self.tokenizer.num_special_tokens_to_add(pair=pairs is not None):
                cases.append(self._case(name, self._encode(texts, pairs)))
        return cases

    def _encode(self, texts: list[str], pairs: list[str] | None) -> Arrays:
        fixed = self.static.get(self.axes[-1])
        choices = self._sizes(1, 1)[self.axes[1]] if len(self.axes) == 3 else 1
        encoded = self.tokenizer(
            [text for text in texts for _ in range(choices)],
            [pair for pair in pairs for _ in range(choices)] if pairs else None,
            padding="max_length" if fixed else self.tokenizer.pad_token is not None,
            truncation=True,
            max_length=fixed or self.longest,
            return_tensors="np",
        )
        shape = (len(texts), choices, -1) if len(self.axes) == 3 else (len(texts), -1)
        return {name: np.asarray(encoded[name], dtype=np.int64).reshape(shape) for name in self.names}


def _rng(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def _unique(cases: list[Case]) -> list[Case]:
    """Static axes make several sizes fall together: the first of each name stays."""
    return list({case.name: case for case in reversed(cases)}.values())[::-1]
