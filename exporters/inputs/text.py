"""Inputs for a model that reads tokens: samples of any size, and the verification cases made from them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from onnxport.exporters.axes import axis_range, token_axes
from onnxport.exporters.errors import RecipeError, SignatureError, SourceError
from onnxport.exporters.exportable import Arrays
from onnxport.exporters.global_attention import has_global_attention
from onnxport.exporters.inputs.seed import seeded
from onnxport.exporters.inputs.token_ids import draw_ids
from onnxport.exporters.manifest import Preprocessing
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, Dim, Vocabulary

if TYPE_CHECKING:
    from onnxport.exporters.checkpoint import Checkpoint

MASK = "attention_mask"
KNOWN_INPUTS = ("input_ids", MASK, "token_type_ids")
"""Inputs this module can make."""

# A single case should not need more than this for its attention scores: 8192 tokens in 12 heads would take 3 GB.
_ATTENTION_BYTES = 512 * 1024 * 1024
# Sizes at trace time: all different and at least 2, so that no axis is mistaken for another or for a constant.
_EXAMPLE = {"batch": 2, "choices": 4}
_EXAMPLE_LENGTH = 11

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
        token_axes: axes of every input: batch and sequence, or batch, choices and sequence.
        vocab_size: token ids are below it.
        pad_token_id: what stands at padded positions.
        type_vocab_size: number of token types the model knows.
        eos_token_id: what ends a text, where the model says so: CLIP reads a text off the position at which it stands.
        has_global_attention: whether a 2 in the mask gives a token global attention (Longformer).
        max_length: longest sequence of the model in tokens, None if unknown.
        longest: longest sequence worth running in one case; at most max_length.
        static: axes with a fixed size.
        tokenizer: transformers' tokenizer, or None.
    """

    names: tuple[str, ...]
    token_axes: tuple[str, ...]
    vocab_size: int
    pad_token_id: int
    type_vocab_size: int
    max_length: int | None
    longest: int
    static: Mapping[str, int]
    tokenizer: Any = None
    eos_token_id: int | None = None
    has_global_attention: bool = False

    @property
    def inputs(self) -> dict[str, tuple[Dim, ...]]:
        return dict.fromkeys(self.names, self.token_axes)

    @property
    def axes(self) -> dict[str, AxisRange]:
        limits = {axis: self.max_length if axis == self.token_axes[-1] else None for axis in self.token_axes}
        return {axis: axis_range(axis, self.static, most=limit) for axis, limit in limits.items()}

    @property
    def example(self) -> dict[str, int]:
        fitting = [n for n in range(min(_EXAMPLE_LENGTH, self.longest), 1, -1) if n not in _EXAMPLE.values()]
        sizes = [*[*_EXAMPLE.values()][: len(self.token_axes) - 1], fitting[0] if fitting else self.longest]
        return {axis: self.static.get(axis, size) for axis, size in zip(self.token_axes, sizes, strict=True)}

    @property
    def mask(self) -> str | None:
        return MASK if MASK in self.names else None

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing(padding_side=getattr(self.tokenizer, "padding_side", None), max_length=self.max_length)

    @property
    def notes(self) -> tuple[str, ...]:
        told = "the checkpoint has no tokenizer: inputs are taken from the model's forward"
        return () if self.tokenizer is not None else (told,)

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        """Random ids (never the padding id), nothing masked, both token types where there are two.

        What ends a text stands at the end of every row and nowhere else.
        """
        shape = tuple(sizes[axis] for axis in self.token_axes)
        reserved = {self.pad_token_id, *([] if self.eos_token_id is None else [self.eos_token_id])}
        ids = draw_ids(shape, self.vocab_size, reserved, rng)
        if self.eos_token_id is not None:
            ids[..., -1] = self.eos_token_id
        types = np.zeros(shape, dtype=np.int64)
        if self.type_vocab_size > 1:
            types[..., shape[-1] // 2 :] = 1
        known = {
            "input_ids": ids,
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
        cases = [*self._random(suite), *self._padded(), *self._global(suite)]
        if suite != "quick":
            cases += self._odd_values()
        return _unique([*cases, *self._real_text(suite)])

    def _sizes(self, batch: int, sequence: int) -> dict[str, int]:
        asked = (batch, *[2] * (len(self.token_axes) - 2), min(sequence, self.longest))
        return {axis: self.static.get(axis, size) for axis, size in zip(self.token_axes, asked, strict=True)}

    def _random(self, suite: str) -> list[Case]:
        pairs = [(1, 1), (2, 8), (1, 23)]
        if suite != "quick":
            pairs += [(4, 5), (1, self.longest)]
        if suite == "full":
            pairs += [(1, 64), (8, 16), (2, 128)]
        cases = []
        for sizes in (self._sizes(batch, sequence) for batch, sequence in pairs):
            name = f"random.{'x'.join(str(sizes[axis]) for axis in self.token_axes)}"
            cases.append(self._case(name, self.sample(sizes, seeded(name))))
        return cases

    def _case(self, name: str, inputs: Arrays) -> Case:
        return Case(name, inputs, self.mask)

    def _odd_values(self) -> list[Case]:
        """The ends of the allowed range, one id everywhere, and the last token type alone."""
        sizes = self._sizes(2, 8)
        inputs = {name: self.sample(sizes, seeded(name)) for name in ("ids.same", "ids.bounds", "types.last")}
        inputs["ids.same"]["input_ids"][...] = 0
        inputs["ids.bounds"]["input_ids"][...] = np.where(
            np.arange(sizes[self.token_axes[-1]]) % 2, self.vocab_size - 1, 0
        )
        if "token_type_ids" in self.names and self.type_vocab_size > 1:
            inputs["types.last"]["token_type_ids"][...] = self.type_vocab_size - 1
        else:
            del inputs["types.last"]
        return [self._case(name, arrays) for name, arrays in inputs.items()]

    def _padded(self) -> list[Case]:
        """Right, left and interleaved padding; in each, the second row keeps a single real token."""
        sizes = self._sizes(3, 16)
        length = sizes[self.token_axes[-1]]
        if MASK not in self.names or length < 2:
            return []
        real = max(length // 2, 1)
        shapes = {"right": np.arange(length) < real, "left": np.arange(length) >= length - real}
        shapes["interleaved"] = np.arange(length) % 3 != 1
        cases = []
        for kind, row in shapes.items():
            mask = np.ones((self._rows(sizes), length), dtype=np.int64)
            mask[0] = row
            mask[1:2] = np.eye(1, length, int(np.flatnonzero(row)[0]), dtype=np.int64)
            cases.append(self._masked(f"padding.{kind}", sizes, mask))
        return cases

    def _global(self, suite: str) -> list[Case]:
        """Global attention of the first token; and of several, in each row another number, beside padding and without.

        From `standard` on also over the longest text, from and to tokens that no window reaches.
        """
        if not self.has_global_attention or MASK not in self.names:
            return []
        sizes = self._sizes(3, 16)
        first = np.ones((self._rows(sizes), sizes[self.token_axes[-1]]), dtype=np.int64)
        first[:, 0] = 2
        masks = {"first": first, "mixed": _some_global(first.shape)}
        cases = [self._masked(f"global.{kind}", sizes, mask) for kind, mask in masks.items()]
        if suite != "quick":
            sizes = self._sizes(1, self.longest)
            mask = _some_global((self._rows(sizes), sizes[self.token_axes[-1]]))
            cases.append(self._masked("global.longest", sizes, mask))
        return cases

    def _rows(self, sizes: Mapping[str, int]) -> int:
        """How many texts there are at these sizes."""
        return math.prod(sizes[axis] for axis in self.token_axes[:-1])

    def _masked(self, name: str, sizes: Mapping[str, int], mask: np.ndarray) -> Case:
        """Random texts with padding wherever the mask, [rows, length], is 0."""
        inputs = self.sample(sizes, seeded(name))
        length = mask.shape[1]
        inputs[MASK] = mask.reshape(inputs[MASK].shape)
        ids = inputs["input_ids"].reshape(-1, length)
        ids[mask == 0] = self.pad_token_id
        if self.eos_token_id is not None:
            ids[np.arange(len(mask)), length - 1 - np.argmax(mask[:, ::-1] != 0, axis=1)] = self.eos_token_id
        if "token_type_ids" in inputs:
            inputs["token_type_ids"].reshape(-1, length)[mask == 0] = 0
        return self._case(name, inputs)

    def left_out(self, suite: str) -> dict[str, str]:
        """The texts of a suite that have no place in the sizes of the graph, with the reason."""
        return {name: reason for name, _, _, reason in self._texts(suite) if reason is not None}

    def _real_text(self, suite: str) -> list[Case]:
        return [
            self._case(name, self._encode(texts, pairs))
            for name, texts, pairs, reason in self._texts(suite)
            if reason is None
        ]

    def _texts(self, suite: str) -> Iterator[tuple[str, list[str], list[str] | None, str | None]]:
        """Yields name, texts and second texts of each case, and why it cannot be made; None: it can."""
        if self.tokenizer is None:
            return
        batch = self.static.get(self.token_axes[0])
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
        for name, texts, pairs in kinds:
            rows = batch or len(texts)
            if self.tokenizer.pad_token is None:  # rows of different lengths cannot be batched
                texts, pairs = texts[:1], pairs and pairs[:1]
            texts = [texts[i % len(texts)] for i in range(rows)]
            pairs = [pairs[i % len(pairs)] for i in range(rows)] if pairs else None
            # A tokenizer does not cut below its special tokens: what does not fit is no case of this model.
            room = self.static.get(self.token_axes[-1], self.longest)
            special = self.tokenizer.num_special_tokens_to_add(pair=pairs is not None)
            reason = None
            if self.tokenizer.pad_token is None and self.token_axes[-1] in self.static:
                reason = f"the tokenizer has no padding token to fill the {room} tokens that the graph takes"
            elif room <= special:
                reason = f"the {room} tokens that fit have no room for a text beside {special} special tokens"
            yield name, texts, pairs, reason

    def _encode(self, texts: list[str], pairs: list[str] | None) -> Arrays:
        fixed = self.static.get(self.token_axes[-1])
        choices = self._sizes(1, 1)[self.token_axes[1]] if len(self.token_axes) == 3 else 1
        encoded = self.tokenizer(
            [text for text in texts for _ in range(choices)],
            [pair for pair in pairs for _ in range(choices)] if pairs else None,
            padding="max_length" if fixed else self.tokenizer.pad_token is not None,
            truncation=True,
            max_length=fixed or self.longest,
            return_tensors="np",
        )
        shape = (len(texts), choices, -1) if len(self.token_axes) == 3 else (len(texts), -1)
        return {name: np.asarray(encoded[name], dtype=np.int64).reshape(shape) for name in self.names}


def text_inputs(checkpoint: Checkpoint) -> TextInputs:
    """What the tokenizer emits and forward takes; without a tokenizer, what the model can use.

    Raises:
        SignatureError: the model needs an input that cannot be made.
        RecipeError: axes that do not fit.
        SourceError: the tokenizer belongs to another model.
    """
    model, config, recipe = checkpoint.model, _text_config(checkpoint.config), checkpoint.recipe
    tokenizer = checkpoint.processors.tokenizer
    accepted = inspect.signature(model.forward).parameters
    type_vocab_size = int(getattr(config, "type_vocab_size", 0) or 0)
    if tokenizer is not None:
        emitted = set(tokenizer("one two"))
    else:
        emitted = {"input_ids", MASK} | ({"token_type_ids"} if type_vocab_size > 1 else set())
    names = tuple(name for name in accepted if name in emitted)
    unknown = [name for name in names if name not in KNOWN_INPUTS]
    if "input_ids" not in names or unknown:
        raise SignatureError(
            f"{type(model).__name__} takes {', '.join(accepted)} and the tokenizer emits {', '.join(sorted(emitted))}; "
            f"onnxport can make {', '.join(KNOWN_INPUTS)}"
        )
    vocab_size = getattr(config, "vocab_size", None)
    if not isinstance(vocab_size, int) or vocab_size < 2:
        raise SignatureError(
            f"{type(model).__name__} reads tokens, but its config has vocab_size {vocab_size}; expected a number of "
            "at least 2"
        )
    limit = _max_length(model, config, tokenizer)
    axes, static = token_axes(checkpoint.task.token_axes, names, recipe)
    if limit is not None and static.get(axes[-1], 0) > limit:
        raise RecipeError(f"a static {axes[-1]} of {static[axes[-1]]} is longer than the model's {limit} tokens")
    pad = tokenizer.pad_token_id if tokenizer is not None else None
    if tokenizer is not None:
        _require_known_ids(tokenizer, vocab_size)
    return TextInputs(
        names=names,
        token_axes=axes,
        vocab_size=vocab_size,
        pad_token_id=int(pad if pad is not None else getattr(config, "pad_token_id", None) or 0),
        type_vocab_size=type_vocab_size,
        max_length=limit,
        longest=_longest_case(limit, config, full=recipe.suite == "full"),
        static=static,
        tokenizer=tokenizer,
        eos_token_id=_eos_token_id(config, tokenizer, vocab_size),
        has_global_attention=has_global_attention(model),
    )


def _some_global(shape: tuple[int, int]) -> np.ndarray:
    """A mask of 0 (padding), 1 and 2 (global attention), int64 of that shape: [rows, length].

    The first row is padded on the right and has 2 at both ends of its text, the second has none, and the third has
    padding on the left and 2 at every third token of the rest.
    """
    length = shape[1]
    mask = np.ones(shape, dtype=np.int64)
    real = max(length - length // 4, 1)
    mask[0, real:] = 0
    mask[0, [0, real - 1]] = 2
    mask[2:3, length // 3 :: 3] = 2
    mask[2:3, : length // 4] = 0
    return mask


def _text_config(config: Any) -> Any:
    """What describes the reader of tokens: the whole config, or its part for text in a model that reads images too."""
    return config if hasattr(config, "vocab_size") else getattr(config, "text_config", config)


def _eos_token_id(config: Any, tokenizer: Any, vocab_size: int) -> int | None:
    """The id that ends a text, of a model whose config names one; the tokenizer knows better which it is.

    The config of OpenAI's CLIP says 2, which ends no text.
    """
    if getattr(config, "eos_token_id", None) is None:
        return None
    told = [getattr(tokenizer, "eos_token_id", None), config.eos_token_id]
    fitting = [id for id in told if isinstance(id, int) and 0 <= id < vocab_size]
    return fitting[0] if fitting and vocab_size > 2 else None


def _require_known_ids(tokenizer: Any, vocab_size: int) -> None:
    """A tokenizer of another model makes ids that this one has no embedding for."""
    highest = max(id for text in TEXTS for id in tokenizer(text, verbose=False)["input_ids"])
    if highest >= vocab_size:
        raise SourceError(
            f"the tokenizer does not belong to the model: it makes the id {highest} of a common text, and the model "
            f"knows the ids below {vocab_size}; put the model's own tokenizer files into the checkpoint"
        )


def _max_length(model: nn.Module, config: Any, tokenizer: Any) -> int | None:
    """The longest sequence in tokens that both the position table and the tokenizer allow."""
    positions = getattr(config, "max_position_embeddings", None)
    limits = []
    if positions and positions > 0:
        # RoBERTa and its kin count positions from padding_idx + 1: their table is that much longer than the text.
        offsets = {
            module.padding_idx + 1
            for name, module in model.named_modules()
            if isinstance(module, nn.Embedding)
            and name.endswith("position_embeddings")
            and module.num_embeddings == positions
            and module.padding_idx is not None
        }
        limits.append(positions - max(offsets, default=0))
    told = getattr(tokenizer, "model_max_length", None)
    if told is not None and 0 < told < 1_000_000:  # transformers' word for "no limit" is about 1e30
        limits.append(int(told))
    return min(limits, default=None)


def _longest_case(limit: int | None, config: Any, *, full: bool) -> int:
    heads = int(getattr(config, "num_attention_heads", None) or 12)
    affordable = int((_ATTENTION_BYTES / (4 * heads)) ** 0.5)
    if limit is None:
        return min(512, affordable)
    return limit if full else min(limit, affordable)


def _unique(cases: list[Case]) -> list[Case]:
    """Static axes make several sizes fall together: the first of each name stays."""
    return list({case.name: case for case in reversed(cases)}.values())[::-1]
