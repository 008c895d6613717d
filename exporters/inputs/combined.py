"""Inputs of several kinds for one graph: text with an image, an image with points.

How the rows of one kind go with those of another is found by running the model. A dual encoder (CLIP) compares every
text with every image, so the number of texts and the number of images are two axes. Other models read row by row, and
share one. OWL-ViT has the same number of texts for each image, which makes the one a multiple of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from onnxport.exporters.axes import known_static
from onnxport.exporters.errors import RecipeError, SignatureError
from onnxport.exporters.exportable import Arrays, to_tensors
from onnxport.exporters.inputs import call_options, left_out, makers_of
from onnxport.exporters.inputs.seed import seeded
from onnxport.exporters.manifest import Preprocessing
from onnxport.exporters.suggestion import expected_one_of
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, Dim, Vocabulary, addends

if TYPE_CHECKING:
    from onnxport.exporters.checkpoint import Checkpoint
    from onnxport.exporters.inputs import InputMaker

Make = Callable[["Checkpoint"], "InputMaker"]

_SIZES = {"image": ("height", "width")}
"""Of a kind of input: axes that are no dimension of the graph once their size is given."""


@dataclass(frozen=True)
class Part:
    """What makes one kind of inputs.

    Attributes:
        kind: "text", "image" ...
        maker: of this kind alone.
        names: its name of an axis to the name that the axis has in the graph.
    """

    kind: str
    maker: InputMaker
    names: Mapping[str, str]

    @property
    def inputs(self) -> dict[str, tuple[Dim, ...]]:
        return {name: tuple(self._renamed(dim) for dim in dims) for name, dims in self.maker.inputs.items()}

    @property
    def axes(self) -> dict[str, AxisRange]:
        return {self.names[axis]: allowed for axis, allowed in self.maker.axes.items()}

    @property
    def example(self) -> dict[str, int]:
        return {self.names[axis]: size for axis, size in self.maker.example.items()}

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        return self.maker.sample({axis: sizes[name] for axis, name in self.names.items()}, rng)

    def sizes(self, case: Case) -> dict[str, int]:
        """The size that each axis has in a case of this kind."""
        inputs = self.inputs
        return {
            dim: size
            for name, array in case.inputs.items()
            for dim, size in zip(inputs[name], array.shape, strict=True)
            if dim in self.axes and isinstance(dim, str)
        }

    def _renamed(self, dim: Dim) -> Dim:
        if isinstance(dim, int):
            return dim
        return "+".join(str(self.names.get(str(part), part)) for part in addends(dim))


@dataclass(frozen=True)
class CombinedInputs:
    """Inputs of several kinds: the union of what the parts make, in the order of `order`.

    `told`: things a person should know of how the parts go together, one line each.
    """

    parts: tuple[Part, ...]
    order: tuple[str, ...]
    told: tuple[str, ...] = ()

    @property
    def inputs(self) -> dict[str, tuple[Dim, ...]]:
        made = {name: dims for part in self.parts for name, dims in part.inputs.items()}
        return {name: made[name] for name in self.order}

    @property
    def axes(self) -> dict[str, AxisRange]:
        """An axis that several parts have may take the sizes that all of them allow."""
        merged: dict[str, AxisRange] = {}
        for part in self.parts:
            for name, allowed in part.axes.items():
                known = merged.get(name, allowed)
                limits = [limit for limit in (known.max, allowed.max) if limit is not None]
                merged[name] = AxisRange(min=max(known.min, allowed.min), max=min(limits, default=None))
        return merged

    @property
    def example(self) -> dict[str, int]:
        """No two axes have one size, so that none is taken for another."""
        sizes: dict[str, int] = {}
        for part in self.parts:
            for name, size in part.example.items():
                if name not in sizes:
                    sizes[name] = self._unlike(size, name, set(sizes.values()))
        return sizes

    @property
    def mask(self) -> str | None:
        return next((part.maker.mask for part in self.parts if part.maker.mask is not None), None)

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        return {name: vocabulary for part in self.parts for name, vocabulary in part.maker.vocabularies.items()}

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing.together([part.maker.preprocessing for part in self.parts])

    @property
    def options(self) -> dict[str, Any]:
        """What forward must be told besides the inputs, by any part."""
        return {name: value for part in self.parts for name, value in call_options(part.maker).items()}

    @property
    def notes(self) -> tuple[str, ...]:
        return (*(note for part in self.parts for note in part.maker.notes), *self.told)

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        made = {name: array for part in self.parts for name, array in part.sample(sizes, rng).items()}
        return {name: made[name] for name in self.order}

    def cases(self, suite: str) -> list[Case]:
        """Every case of every part once at least, beside a case of each other part that has the sizes they share.

        Where there is none, inputs of the other kinds are drawn.
        """
        offered = [part.maker.cases(suite) for part in self.parts]
        used = {(index, case.name): 0 for index, cases in enumerate(offered) for case in cases}
        combined: dict[str, Case] = {}
        for index, cases in enumerate(offered):
            for case in cases:
                if used[index, case.name]:
                    continue
                name = case.name if case.name not in combined else f"{self.parts[index].kind}.{case.name}"
                inputs, sizes = dict(case.inputs), self.parts[index].sizes(case)
                used[index, case.name] += 1
                for other, part in enumerate(self.parts):
                    if other == index:
                        continue
                    fitting = [c for c in offered[other] if _agree(part.sizes(c), sizes)]
                    partner = min(fitting, key=lambda c: used[other, c.name], default=None)
                    if partner is None:
                        partner = self._drawn(part, sizes, name)
                    else:
                        used[other, partner.name] += 1
                    inputs |= partner.inputs
                    sizes |= part.sizes(partner)
                combined[name] = Case(name, {name: inputs[name] for name in self.order}, self.mask)
        return list(combined.values())

    def left_out(self, suite: str) -> dict[str, str]:
        """See `inputs.left_out`, of every part."""
        return {name: why for part in self.parts for name, why in left_out(part.maker, suite).items()}

    def _drawn(self, part: Part, sizes: Mapping[str, int], name: str) -> Case:
        rng = seeded(f"{part.kind} {name}")
        wanted = {axis: sizes.get(axis, size) for axis, size in part.example.items()}
        return Case(name, part.sample(wanted, rng))

    def _unlike(self, size: int, name: str, taken: set[int]) -> int:
        allowed = self.axes[name]
        if allowed.fixed is not None or size not in taken:
            return size
        larger = range(size + 1, size + 2 + len(taken))
        smaller = range(size - 1, 1, -1)
        fitting = [n for n in (*larger, *smaller) if n not in taken and (allowed.max is None or n <= allowed.max)]
        return fitting[0] if fitting else size


def combine(checkpoint: Checkpoint, makers: Mapping[str, Make], order: Sequence[str]) -> CombinedInputs:
    """Returns the maker of all of these kinds together.

    Args:
        makers: kind to what makes the maker of it.
        order: names of inputs, all that are made among them.

    Raises:
        SignatureError: the model runs on no combination of them.
        RecipeError: axes that no part has.
    """
    free = _free(checkpoint, makers)
    relation = _relation(checkpoint, free)
    parts = _named(checkpoint, makers, free)
    static = {axis: size for axis, size in checkpoint.recipe.static.items() if axis not in _taken(checkpoint, makers)}
    batches = [_batch(part.maker) for part in parts]
    named = [batch for batch in batches if isinstance(batch, str)]
    if relation == "rows":
        # One name for the axis of rows: that of a part for which the recipe renames it, if any.
        default = {str(_batch(maker)) for maker in free.values()}
        name = next((batch for batch in named if batch not in default), next(iter(named), ""))
        names = [name] * len(parts)
        static |= {shared: batch for shared, batch in zip(names, batches, strict=True) if isinstance(batch, int)}
    else:
        clash = {batch for batch in named if named.count(batch) > 1}
        names = [
            f"{part.kind}_{batch}" if batch in clash else str(batch) for part, batch in zip(parts, batches, strict=True)
        ]
    parts = [
        replace(part, names={**part.names, batch: name}) if isinstance(batch, str) else part
        for part, batch, name in zip(parts, batches, names, strict=True)
    ]
    told: tuple[str, ...] = ()
    if relation == "groups" and names[1] not in static:
        static[names[1]] = 1
        told = (
            f"{names[1]} is 1, with any {names[0]}: the model takes the same number of {parts[0].kind} inputs for each "
            f"{parts[1].kind} (--static {names[1]}=N --static {names[0]}=M*N for other numbers)",
        )
    known_static(static, _axes_of(checkpoint, parts, makers))
    fixed = {name: axis.fixed for part in parts for name, axis in part.axes.items() if axis.fixed is not None}
    parts = [_fixed(checkpoint, part, makers[part.kind], {**fixed, **static}) for part in parts]
    made = {name for part in parts for name in part.inputs}
    return CombinedInputs(tuple(parts), tuple(name for name in order if name in made), told)


def apart(checkpoint: Checkpoint, makers: Mapping[str, Make]) -> dict[str, InputMaker]:
    """Returns the makers of kinds that are fed to graphs of their own, each with what the recipe says of its axes.

    Raises:
        RecipeError: axes that none of them has.
    """
    parts = _named(checkpoint, makers, _free(checkpoint, makers))
    static = known_static(checkpoint.recipe.static, _axes_of(checkpoint, parts, makers))
    return {part.kind: _fixed(checkpoint, part, makers[part.kind], static).maker for part in parts}


def _free(checkpoint: Checkpoint, makers: Mapping[str, Make]) -> dict[str, InputMaker]:
    """The makers as they are with any number of rows, called "batch"; sizes are those of the recipe."""
    free = {}
    for kind, make in makers.items():
        own = {name: dims for name, dims in checkpoint.recipe.axes.items() if dims and kind in makers_of([name])}
        free[kind] = make(_asking(checkpoint, kind, {name: ("batch", *dims[1:]) for name, dims in own.items()}, {}))
    return free


def _taken(checkpoint: Checkpoint, kinds: Iterable[str]) -> dict[str, int]:
    """The sizes in the recipe's `static` that a maker of one of these kinds sees from the start."""
    known = [axis for kind in kinds for axis in _SIZES.get(kind, ())]
    return {axis: size for axis, size in checkpoint.recipe.static.items() if axis in known}


def _axes_of(checkpoint: Checkpoint, parts: Sequence[Part], kinds: Iterable[str]) -> list[str]:
    """What `static` may name."""
    return [*(axis for part in parts for axis in part.axes), *_taken(checkpoint, kinds)]


def _named(checkpoint: Checkpoint, makers: Mapping[str, Make], free: Mapping[str, InputMaker]) -> list[Part]:
    """A part for each kind, with the names that the recipe gives to its axes, nothing fixed by `static` yet."""
    recipe = checkpoint.recipe
    inputs = [name for maker in free.values() for name in maker.inputs]
    for name in recipe.axes:
        if name not in inputs:
            raise RecipeError(f"axes (--axes) names an unknown input {name!r}: {expected_one_of(name, inputs)}")
    parts = []
    for kind, maker in free.items():
        own = {name: dims for name, dims in recipe.axes.items() if name in maker.inputs}
        named = makers[kind](_asking(checkpoint, kind, own, {})) if own else maker
        parts.append(Part(kind, named, {axis: axis for axis in named.axes}))
    return parts


def _fixed(checkpoint: Checkpoint, part: Part, make: Make, static: Mapping[str, int]) -> Part:
    own = {axis: static[name] for axis, name in part.names.items() if name in static}
    if not own:
        return part
    axes = {name: dims for name, dims in checkpoint.recipe.axes.items() if name in part.maker.inputs}
    return replace(part, maker=make(_asking(checkpoint, part.kind, axes, own)))


def tower_config(checkpoint: Checkpoint, kind: str) -> Checkpoint:
    """Returns the checkpoint with the config of the part that reads this kind of input, where it has one of its own."""
    towers = {"text": "text_config", "image": "vision_config", "audio": "audio_config"}
    own = getattr(checkpoint.config, towers.get(kind, ""), None)
    return checkpoint if own is None else replace(checkpoint, config=own)


def _asking(
    checkpoint: Checkpoint, kind: str, axes: Mapping[str, tuple[Dim, ...]], static: Mapping[str, int]
) -> Checkpoint:
    """The checkpoint as the maker of one kind is to see it: the config of its part, and what concerns its axes."""
    sizes = {**_taken(checkpoint, [kind]), **static}
    recipe = checkpoint.recipe.model_copy(update={"axes": dict(axes), "static": sizes})
    return replace(tower_config(checkpoint, kind), recipe=recipe)


def _batch(maker: InputMaker) -> Dim:
    """The axis along which rows of a part stand, or their fixed number."""
    return next(iter(maker.inputs.values()))[0]


def _relation(checkpoint: Checkpoint, makers: Mapping[str, InputMaker]) -> str:
    """How rows of the kinds go together: "free"; "groups", several of the first to each other one; "rows", one by one.

    Raises:
        SignatureError: in none of these ways.
    """
    count = len(makers)
    reason: str | None = ""
    for relation, batches in {
        "free": list(range(2, 2 + count)),
        "groups": [4, *[2] * (count - 1)],
        "rows": [2] * count,
    }.items():
        reason = _failure(checkpoint, makers, batches)
        if reason is None:
            return relation
    raise SignatureError(
        f"{type(checkpoint.model).__name__} runs on no combination of {' and '.join(makers)} inputs that onnxport can "
        f"make: {reason}"
    )


def _failure(checkpoint: Checkpoint, makers: Mapping[str, InputMaker], batches: Sequence[int]) -> str | None:
    """Why the model does not run with these numbers of rows; None: it runs."""
    rng = np.random.default_rng(0)
    inputs: Arrays = {}
    options: dict[str, Any] = {}
    for maker, batch in zip(makers.values(), batches, strict=True):
        inputs |= maker.sample({**maker.example, str(_batch(maker)): batch}, rng)
        options |= call_options(maker)
    try:
        with torch.inference_mode():
            checkpoint.model(**to_tensors(inputs), **options)
    except Exception as e:  # noqa: BLE001  (whatever a model raises of sizes that do not go together)
        return f"{type(e).__name__}: {e}"
    return None


def _agree(first: Mapping[str, int], second: Mapping[str, int]) -> bool:
    return all(second.get(axis, size) == size for axis, size in first.items())
