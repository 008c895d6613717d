"""Inputs for a decoder with a key and value cache: new tokens, and what earlier ones left in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from onnxport.exporters.axes import axis_range, named_axes
from onnxport.exporters.exportable import Arrays
from onnxport.exporters.generation.decoder_loop import PAST, PRESENT, position_ids
from onnxport.exporters.inputs.positions import require_positions
from onnxport.exporters.inputs.seed import seeded
from onnxport.exporters.inputs.text import MASK, TEXTS, TextInputs, text_inputs
from onnxport.exporters.inputs.token_ids import draw_ids
from onnxport.exporters.manifest import Preprocessing
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, Dim, Vocabulary

if TYPE_CHECKING:
    from onnxport.exporters.checkpoint import Checkpoint
    from onnxport.exporters.components.key_value_cache import LayerCache

IDS, POSITIONS = "input_ids", "position_ids"

# Rows, new tokens and earlier ones at trace time: all different and at least 2. The second is for few positions.
_EXAMPLES = ((2, 7, 5), (4, 3, 2))
# A case should not need more than this for its cache, nor for its logits: 2048 tokens of 150,000 would take 1.2 GB.
_CACHE_BYTES = 256 * 1024 * 1024
_LOGITS_BYTES = 256 * 1024 * 1024
_BEYOND = 3
# A prompt that long is worth generating from, to see a window pass.
_LONG_PROMPT = 256


@dataclass(frozen=True)
class DecoderAxes:
    """What the axes are called."""

    batch: str = "batch"
    sequence: str = "sequence"
    past: str = "past_sequence"

    @property
    def total(self) -> str:
        """The positions of the mask: those of the cache and the new ones."""
        return f"{self.past}+{self.sequence}"


@dataclass(frozen=True)
class DecoderInputs:
    """Makes the inputs of a decoder with a cache.

    Attributes:
        text: what is known of its tokens.
        axes_named: the axes.
        cache: cache tensor to heads and size of a head, in the order of the graph.
        takes_positions: whether position_ids are an input.
        dtype: of the cache.
        window: how many positions the most far-sighted of the layers with a window looks back; None: none has one.
        static: axes with a fixed size.
        run: runs the model, for caches that it made itself.
    """

    text: TextInputs
    axes_named: DecoderAxes
    cache: Mapping[str, tuple[int, int]]
    takes_positions: bool
    dtype: np.dtype
    window: int | None
    static: Mapping[str, int]
    run: Callable[[Arrays], Mapping[str, np.ndarray]]

    @property
    def inputs(self) -> dict[str, tuple[Dim, ...]]:
        axes = self.axes_named
        tokens: dict[str, tuple[Dim, ...]] = {
            IDS: (axes.batch, axes.sequence),
            MASK: (axes.batch, axes.total),
            **({POSITIONS: (axes.batch, axes.sequence)} if self.takes_positions else {}),
        }
        return tokens | {name: (axes.batch, heads, axes.past, size) for name, (heads, size) in self.cache.items()}

    @property
    def axes(self) -> dict[str, AxisRange]:
        limit = self.longest_proven
        ranges = {
            self.axes_named.batch: (1, None),
            self.axes_named.sequence: (1, limit),
            self.axes_named.past: (0, None if limit is None else limit - 1),
        }
        return {axis: axis_range(axis, self.static, least, most) for axis, (least, most) in ranges.items()}

    @property
    def example(self) -> dict[str, int]:
        axes = (self.axes_named.batch, self.axes_named.sequence, self.axes_named.past)
        limit = self.longest_proven
        found = [
            {axis: self.static.get(axis, size) for axis, size in zip(axes, sizes, strict=True)} for sizes in _EXAMPLES
        ]
        fitting = [sizes for sizes in found if limit is None or sizes[axes[1]] + sizes[axes[2]] <= limit]
        return fitting[0] if fitting else found[-1]

    @property
    def mask(self) -> str:
        return MASK

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        return {IDS: Vocabulary(size=self.text.vocab_size, padding=self.text.pad_token_id)}

    @property
    def preprocessing(self) -> Preprocessing:
        return self.text.preprocessing

    @property
    def notes(self) -> tuple[str, ...]:
        told = list(self.text.notes)
        if self.longest_proven != self.text.max_length:
            told.append(
                f"attention has a window of {self.window} positions, and a cache longer than that is too large for a "
                f"case: the graph is promised for up to {self.longest_proven} positions only"
            )
        if getattr(self.text.tokenizer, "padding_side", "left") == "right":
            told.append("the tokenizer pads on the right; to generate for several prompts at once, pad on the left")
        return tuple(told)

    @property
    def longest_proven(self) -> int | None:
        """Most positions that the graph is promised for; None: no bound known. Beyond a window only if a case is."""
        if self.window is None or self._beyond_sizes() or not self._may_exceed(self.window):
            return self.text.max_length
        return self.window

    @property
    def longest(self) -> int:
        """Most new tokens worth running in one case."""
        affordable = max(_LOGITS_BYTES // (4 * self.text.vocab_size), 1)
        return min(self.text.longest, self.longest_proven or self.text.longest, affordable)

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        """Random ids (never the padding id), nothing masked, and a cache drawn from N(0, 1)."""
        batch, sequence, past = (
            sizes[axis] for axis in (self.axes_named.batch, self.axes_named.sequence, self.axes_named.past)
        )
        ids = self._ids((batch, sequence), rng)
        return self._inputs(
            ids, np.ones((batch, past + sequence), dtype=np.int64), self._random_cache(batch, past, rng)
        )

    def cases(self, suite: str) -> list[Case]:
        """The cases of a suite. A case is the same in every suite that has it: its name is the seed."""
        cases = [
            *self._sized("prefill", [(1, 0, 1), (2, 0, 8)]),
            *self._sized("decode", [(3, 9, 1)]),
            *self._sized("chunk", [(2, 6, 4)]),
            *(self._case(*sizes) for sizes in self._beyond_sizes()),
        ]
        if suite != "quick":
            cases += [
                *self._sized("prefill", [(4, 0, 5), (1, 0, self.longest)]),
                *self._sized("decode", [(1, 1, 1), (2, 17, 1)]),
                *self._sized("random", [(2, 3, 2), (1, self.longest - 1, 1)], random=True),
                *self._padded(),
                *self._ids_at_bounds(),
                *self._real_text(),
            ]
        if suite == "full":
            cases += [*self._sized("decode", [(8, 12, 1), (1, 40, 1)]), *self._sized("chunk", [(1, 1, 16), (3, 20, 5)])]
        return list({case.name: case for case in reversed(cases)}.values())[::-1]

    def _sized(self, kind: str, sizes: Sequence[tuple[int, int, int]], *, random: bool = False) -> list[Case]:
        """Cases of these rows, positions of the cache and new tokens; the cache is the model's own or `random`."""
        cases = []
        for asked in sizes:
            batch, past, new = self._fit(*asked)
            cases.append(
                self._case(f"{kind}.{batch}x{f'{past}+' if past else ''}{new}", batch, past, new, random=random)
            )
        return cases

    def _case(self, name: str, batch: int, past: int, new: int, *, random: bool = False) -> Case:
        """Nothing is masked. A cache of more tokens than are worth running is `random` too."""
        if random or past > self.longest:
            axes = self.axes_named
            inputs = self.sample({axes.batch: batch, axes.past: past, axes.sequence: new}, seeded(name))
            return Case(name, inputs, MASK)
        ids = self._ids((batch, past + new), seeded(name))
        return self._continued(name, ids, np.ones_like(ids), past)

    def _fit(self, batch: int, past: int, new: int) -> tuple[int, int, int]:
        """The sizes with those of static axes in their place, and not longer than the model and the memory allow."""
        axes, limit = self.axes_named, self.longest_proven
        batch = self.static.get(axes.batch, batch)
        new = self.static.get(axes.sequence, new if limit is None else min(new, limit))
        room = [self._affordable_past(batch), *([] if limit is None else [max(limit - new, 0)])]
        return batch, self.static.get(axes.past, min(past, *room)), new

    def _affordable_past(self, batch: int) -> int:
        position_bytes = sum(heads * size for heads, size in self.cache.values()) * self.dtype.itemsize
        return _CACHE_BYTES // (position_bytes * batch)

    def _padded(self) -> list[Case]:
        """Padding in the prompt on either side and within, and in what the cache holds; one row has one real token."""
        cases = []
        for name, past, new in (
            ("padding.left", 0, 9),
            ("padding.right", 0, 9),
            ("padding.interleaved", 0, 9),
            ("padding.cache", 9, 1),
            ("padding.chunk", 8, 4),
        ):
            batch, past, new = self._fit(3, past, new)
            real = _real(name, batch, past + new)
            if (real.sum(axis=1) < 1).any() or past + new < 2:
                continue
            ids = np.where(real == 1, self._ids(real.shape, seeded(name)), self.text.pad_token_id)
            cases.append(self._continued(name, ids, real, past))
        return cases

    def _ids_at_bounds(self) -> list[Case]:
        batch, past, new = self._fit(2, 0, 8)
        every = np.arange(past + new) % 2
        ids = np.broadcast_to(np.where(every, self.text.vocab_size - 1, 0), (batch, past + new)).astype(np.int64)
        same = np.zeros_like(ids)
        return [
            self._continued("ids.bounds", ids, np.ones_like(ids), past),
            self._continued("ids.same", same, np.ones_like(same), past),
        ]

    def _real_text(self) -> list[Case]:
        """Texts of different lengths, padded on the left: as prompts, and with all but the last token in the cache."""
        ids, mask = self.prompts(self.longest)
        return [
            self._continued(name, ids, mask, past)
            for name, (batch, past, new) in self._text_sizes(ids.shape).items()
            if self._fit(batch, past, new) == (batch, past, new)
        ]

    def _text_sizes(self, shape: tuple[int, ...]) -> dict[str, tuple[int, int, int]]:
        """Of the cases of real text, for ids of that shape: rows, positions of the cache and new tokens."""
        if self.text.tokenizer is None:
            return {}
        batch, length = shape
        return {"text.prefill": (batch, 0, length), "text.decode": (batch, length - 1, 1)}

    def left_out(self, suite: str) -> dict[str, str]:
        """The texts of a suite that have no place in the fixed sizes of the graph, with the reason."""
        if suite == "quick":
            return {}
        ids, _ = self.prompts(self.longest)
        told = {}
        for name, sizes in self._text_sizes(ids.shape).items():
            fitting = self._fit(*sizes)
            if fitting != sizes:
                seen, taken = (f"{past} tokens in the cache and {new} new ones" for _, past, new in (sizes, fitting))
                told[name] = f"it has {seen}, and the graph takes {taken}"
        return told

    def prompts(self, longest: int, *, pass_window: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids and mask, int64 [batch, length], of texts of mixed lengths, padded on the left.

        Args:
            longest: texts are cut to so many tokens.
            pass_window: adds a row that nearly fills the window, if there is one that a prompt can fill: what follows
                passes it.
        """
        rng = seeded("prompts")
        if self.text.tokenizer is None:
            rows = [self._ids((min(length, longest),), rng) for length in (9, 3, 6)]
        else:
            told = [np.asarray(self.text.tokenizer(text, verbose=False)[IDS], dtype=np.int64) for text in TEXTS]
            rows = [row[:longest] for row in told if len(row)]
        if pass_window and self.window is not None and self.window <= min(longest, _LONG_PROMPT):
            rows[0] = self._ids((self.window,), rng)  # the first, as a static batch may have no other
        return self._pad_left(rows)

    def _pad_left(self, rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """A static batch is filled up."""
        batch = self.static.get(self.axes_named.batch, len(rows))
        rows = [rows[i % len(rows)] for i in range(batch)]
        length = max(map(len, rows))
        ids = np.full((batch, length), self.text.pad_token_id, dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(rows):
            ids[row, length - len(tokens) :] = tokens
            mask[row, length - len(tokens) :] = 1
        return ids, mask

    def _beyond_sizes(self) -> list[tuple[str, int, int, int]]:
        """Cases longer than the window that the model and the memory of a case allow: name and sizes."""
        if self.window is None or not self._may_exceed(self.window):
            return []
        axes, held = self.axes_named, self.window + _BEYOND
        kinds = {"window.prefill": (2, 0, held + 1), "window.decode": (1, held, 1), "window.chunk": (2, held - 2, 4)}
        found = []
        for name, sizes in kinds.items():
            names = (axes.batch, axes.past, axes.sequence)
            batch, past, new = (self.static.get(axis, size) for axis, size in zip(names, sizes, strict=True))
            fits = self.text.max_length is None or past + new <= self.text.max_length
            affordable = past <= self._affordable_past(batch) and new <= self.text.longest
            if past + new > self.window and fits and affordable:
                found.append((name, batch, past, new))
        return found

    def _may_exceed(self, window: int) -> bool:
        """Whether any input the model takes is longer than that."""
        return self.text.max_length is None or self.text.max_length > window

    def _continued(self, name: str, ids: np.ndarray, mask: np.ndarray, past: int) -> Case:
        """The case in which the first `past` of the tokens were read before, by the model itself."""
        held = self._random_cache(len(ids), 0, seeded(name))
        if past:
            outputs = self.run(self._inputs(ids[:, :past], mask[:, :past], held))
            held = {name: outputs[PRESENT + name.removeprefix(PAST)] for name in self.cache}
        return Case(name, self._inputs(ids[:, past:], mask, held), MASK)

    def _inputs(self, ids: np.ndarray, mask: np.ndarray, cache: Arrays) -> Arrays:
        positions = {POSITIONS: position_ids(mask)[:, mask.shape[1] - ids.shape[1] :]} if self.takes_positions else {}
        return {IDS: ids, MASK: mask, **positions, **cache}

    def _random_cache(self, batch: int, past: int, rng: np.random.Generator) -> Arrays:
        return {
            name: rng.standard_normal((batch, heads, past, size)).astype(self.dtype)
            for name, (heads, size) in self.cache.items()
        }

    def _ids(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        return draw_ids(shape, self.text.vocab_size, {self.text.pad_token_id}, rng)


def decoder_inputs(
    checkpoint: Checkpoint,
    layers: Sequence[LayerCache],
    takes_positions: bool,
    run: Callable[[Arrays], Mapping[str, np.ndarray]],
) -> DecoderInputs:
    """Returns what feeds a decoder with a cache.

    Args:
        layers: what each layer keeps.
        takes_positions: whether forward takes position_ids.
        run: runs the model on arrays.

    Raises:
        SignatureError: the decoder has no room for a step with a cache.
        SignatureError, SourceError: as `text_inputs`.
        RecipeError: axes that do not fit.
    """
    recipe = checkpoint.recipe
    text = text_inputs(replace(checkpoint, recipe=recipe.model_copy(update={"axes": {}, "static": {}})))
    cache = {
        f"{PAST}{layer.index}.{kind}": shape
        for layer in layers
        for kind, shape in (("key", layer.key), ("value", layer.value))
    }
    default = DecoderAxes()
    tokens: dict[str, tuple[Dim, ...]] = {IDS: (default.batch, default.sequence)}
    tokens |= {name: (default.batch, heads, default.past, size) for name, (heads, size) in cache.items()}
    named, static = named_axes(tokens, recipe)
    (batch, sequence), (_, _, past, _) = named[IDS], named[next(iter(cache))]
    windows = [layer.window for layer in layers if layer.window is not None]
    maker = DecoderInputs(
        text=text,
        axes_named=DecoderAxes(str(batch), str(sequence), str(past)),
        cache=cache,
        takes_positions=takes_positions,
        dtype=np.dtype(recipe.dtype),
        window=max(windows, default=None),
        static=static,
        run=run,
    )
    require_positions(
        checkpoint.source.architecture,
        maker.longest_proven,
        maker.example,
        maker.axes_named.sequence,
        maker.axes_named.past,
    )
    return maker


def _real(name: str, batch: int, length: int) -> np.ndarray:
    """The mask of a padded case, int64 [batch, length]: row 0 is half padding, row 1 has a single real token."""
    real = np.ones((batch, length), dtype=np.int64)
    half = length // 2
    if name == "padding.right":
        real[0, length - half :] = 0
        real[1:2, 1:] = 0
    elif name == "padding.interleaved":
        real[0] = np.arange(length) % 3 != 1
        real[1:2, : length - 2] = 0
    else:
        real[0, :half] = 0
        real[1:2, : length - 1] = 0
    return real
