"""Relations: changes to a case that must not change what is answered at its real positions.

A row of a batch must not depend on the rows beside it, nor a real token on the padding around it. Not every model keeps
all of them (absolute positions count padding on the left), so the reference is measured first, and a graph is asked
only for what the reference keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxport.verify.cases import Case, axis_sizes
from onnxport.verify.compare import compare
from onnxport.verify.contract import Dim, GraphContract, Model, addends, size_of
from onnxport.verify.errors import OnnxportError, VerificationError
from onnxport.verify.padding import real_positions
from onnxport.verify.runners import Runner, one_line
from onnxport.verify.tolerance import Criterion
from onnxport.verify.worst import Located, worst_of

_MORE_PADDING = 5
_MOST_ROWS = 4

Picks = Mapping[str, np.ndarray]
"""Axis name to the positions to take along it."""


class Invariant(Model):
    """Whether the reference keeps a relation; `detail` says how far it is from it where it does not."""

    held: bool
    detail: str = ""


class Inapplicable(OnnxportError):
    """A relation cannot be asked of this model, or not with this case; the message is the reason."""


@dataclass(frozen=True, eq=False)
class Variation:
    """A case and a changed one, and which positions of their outputs must be equal.

    Attributes:
        what: the change, for a person ("row 1 alone").
        original_picks, changed_picks: the positions of the outputs of each that are compared; along other axes, all.
    """

    what: str
    original: Case
    changed: Case
    original_picks: Picks = field(default_factory=dict)
    changed_picks: Picks = field(default_factory=dict)


def variations(relation: str, case: Case, contract: GraphContract) -> list[Variation]:
    """Returns the variations of a case that ask for a relation (a key of `RELATIONS`).

    Raises:
        Inapplicable: the model or the case has no place for it.
    """
    return list(RELATIONS[relation](case, contract))


def differences(
    runner: Runner, asked: Sequence[Variation], contract: GraphContract, criterion: Criterion
) -> list[Located]:
    """Runs variations and compares what must be equal, by a criterion in which the original is the measure.

    Raises:
        VerificationError: an output has not the rank of the contract, or not the positions that are to be compared.
        OnnxportError: as the runner.
    """
    answers: dict[int, Mapping[str, np.ndarray]] = {}
    found = []
    for variation in asked:
        original = variation.original
        if id(original) not in answers:
            answers[id(original)] = runner.run(original)
        changed = runner.run(variation.changed)
        _require_positions(answers[id(original)], contract, variation.original_picks)
        _require_positions(changed, contract, variation.changed_picks)
        expected = _pick(answers[id(original)], contract, variation.original_picks)
        actual = _pick(changed, contract, variation.changed_picks)
        real = _pick(_real(original, contract), contract, variation.original_picks)
        found += [Located(variation.what, c) for c in compare(expected, actual, criterion, real=real)]
    return found


def measure_relations(
    reference: Runner, case: Case, contract: GraphContract, criterion: Criterion
) -> dict[str, Invariant]:
    """Returns which relations the reference keeps; those that cannot be asked are left out.

    A reference that cannot run a case raises an `OnnxportError`. Any other exception is a fault of the program, and
    passes through: it says nothing of the reference.
    """
    measured = {}
    for relation in RELATIONS:
        try:
            worst = worst_of(differences(reference, variations(relation, case, contract), contract, criterion))
        except Inapplicable:
            continue
        except OnnxportError as e:  # a reference that fails on the changed case does not keep the relation
            measured[relation] = Invariant(held=False, detail=one_line(e))
            continue
        held = worst.verdict == "pass"
        ratio = worst.numbers.get("worst_ratio")
        how = "its outputs are others" if ratio is None else f"off by {ratio:.3g} times the allowed difference"
        measured[relation] = Invariant(held=held, detail="" if held else how)
    return measured


def batch_axis(contract: GraphContract) -> str:
    """Returns the axis along which rows stand: one called batch that every input and output has, else the first axis of
    all of them. An input of a fixed shape is one for all rows (a switch).

    Raises:
        Inapplicable: there is none.
    """
    inputs = [spec.shape for spec in contract.inputs if any(isinstance(dim, str) for dim in spec.shape)]
    shapes = [*inputs, *(spec.shape for spec in contract.outputs)]
    shared = [dim for dim in shapes[0] if isinstance(dim, str) and all(dim in shape for shape in shapes)]
    for axis in shared:
        if axis.startswith("batch") or all(shape[0] == axis for shape in shapes):
            return axis
    raise Inapplicable("no axis is the batch: none is shared by all inputs and outputs")


def _alone(case: Case, contract: GraphContract) -> Iterator[Variation]:
    axis = batch_axis(contract)
    fixed = contract.axes[axis].fixed if axis in contract.axes else None
    if fixed is not None:
        raise Inapplicable(f"the axis {axis} is fixed at {fixed}: no row can be alone")
    original, rows = _ragged(case, contract), _size(case, contract, axis)
    if rows < 2:
        raise Inapplicable(f"the case {case.name} has a single row")
    for row in range(min(rows, _MOST_ROWS)):
        pick = {axis: np.array([row])}
        yield Variation(f"row {row} alone", original, _take(original, contract, pick), original_picks=pick)


def _reordered(case: Case, contract: GraphContract) -> Iterator[Variation]:
    axis = batch_axis(contract)
    original, rows = _ragged(case, contract), _size(case, contract, axis)
    if rows < 2:
        raise Inapplicable(f"the case {case.name} has a single row")
    pick = {axis: np.arange(rows)[::-1]}
    yield Variation("rows in reverse order", original, _take(original, contract, pick), original_picks=pick)


def _right(case: Case, contract: GraphContract) -> Iterator[Variation]:
    yield _more_padding(case, contract, left=False)


def _left(case: Case, contract: GraphContract) -> Iterator[Variation]:
    """Where the mask covers a cache too, the padding is in the cache, and, with an empty cache, in the prompt."""
    prompt = _without_cache(case, contract)
    found, full = [], []
    for one in (case,) if prompt is case else (case, prompt):
        try:
            found.append(_more_padding(one, contract, left=True))
        except Inapplicable as e:
            full.append(e)
    if not found:
        raise full[0]
    yield from found


def _content(case: Case, contract: GraphContract) -> Iterator[Variation]:
    """Half of the positions are masked, once with padding in them and once with the real values that were there."""
    axes = _token_axes(case, contract)
    assert case.mask is not None
    length = case.inputs[case.mask].shape[-1]
    if length < 2:
        raise Inapplicable(f"the case {case.name} has a single position along {'+'.join(axes)}")
    if not case.inputs[case.mask].all():
        raise Inapplicable(f"the case {case.name} has padding already")  # masking half of a row might leave nothing
    if axes == (_shapes(contract)[case.mask][-1],):
        original = _masked(case, contract, np.arange(length) >= (length + 1) // 2)
    else:  # new tokens look back only: it is the first half that the others could see
        original = _hidden(case, contract, np.arange(length) < length // 2)
    changed = Case(case.name, {**case.inputs, case.mask: original.inputs[case.mask]}, case.mask)
    yield Variation("other values at padded positions", original, changed)


RELATIONS: dict[str, Callable[[Case, GraphContract], Iterator[Variation]]] = {
    "rows.alone": _alone,
    "rows.reordered": _reordered,
    "padding.right": _right,
    "padding.left": _left,
    "padding.content": _content,
}
"""Relation to what makes its variations of a case."""


def _token_axes(case: Case, contract: GraphContract) -> tuple[str, ...]:
    """Returns the axes that the positions of the mask are made of: one, or those of a cache and then of new tokens."""
    if case.mask is None:
        raise Inapplicable("the model takes no mask")
    axes = tuple(part for part in addends(_shapes(contract)[case.mask][-1]) if isinstance(part, str))
    if not axes:
        raise Inapplicable(f"the positions of {case.mask} have no axis name")
    return axes


def _more_padding(case: Case, contract: GraphContract, *, left: bool) -> Variation:
    """The padding is new positions of one axis: on the right the last, on the left the first that has positions."""
    axes, sizes = _token_axes(case, contract), axis_sizes(case, contract)
    axis = next((axis for axis in axes if sizes[axis]), axes[-1]) if left else axes[-1]
    more = _room(contract, axis, sizes[axis])
    changed = {}
    for name, array in case.inputs.items():
        for position, dim in enumerate(_shapes(contract)[name]):
            if axis in addends(dim):
                start = _start(dim, axis, sizes, left=left)
                array = np.insert(array, [start] * more, _padding(name, case, contract), axis=position)
        changed[name] = array
    picks = {}
    for dim in {dim for spec in contract.outputs for dim in spec.shape if isinstance(dim, str)}:
        if axis not in addends(dim) or any(isinstance(part, str) and part not in sizes for part in addends(dim)):
            continue  # nobody knows where the new positions of a sum are that is also of an axis of outputs alone
        start = _start(dim, axis, sizes, left=left)
        picks[dim] = np.delete(np.arange(size_of(dim, sizes) + more), np.arange(start, start + more))
    where = f"the {'left' if left else 'right'}{f' of {axis}' if len(axes) > 1 else ''}"
    what = f"{more} more padded positions on {where}"
    return Variation(what, case, Case(case.name, changed, case.mask), changed_picks=picks)


def _start(dim: Dim, axis: str, sizes: Mapping[str, int], *, left: bool) -> int:
    """Returns the first new position of a dimension that is, or is the sum of others and, an axis that grows."""
    before = addends(dim)[: addends(dim).index(axis)]
    return sum(part if isinstance(part, int) else sizes[part] for part in before) + (0 if left else sizes[axis])


def _room(contract: GraphContract, axis: str, length: int) -> int:
    """Returns how many positions can be added to an axis."""
    most = contract.axes[axis].max if axis in contract.axes else None
    more = _MORE_PADDING if most is None else min(_MORE_PADDING, most - length)
    if more < 1:
        raise Inapplicable(f"the axis {axis} cannot be longer than {most}: there is no room for more padding")
    return more


def _without_cache(case: Case, contract: GraphContract) -> Case:
    """Returns the case with nothing in the cache; the case itself where nothing is in it, or something must be."""
    cached, sizes = set(_token_axes(case, contract)[:-1]), axis_sizes(case, contract)
    may_be_empty = all(axis in contract.axes and contract.axes[axis].min == 0 for axis in cached)
    if not may_be_empty or not any(sizes[axis] for axis in cached):
        return case
    inputs = {}
    for name, array in case.inputs.items():
        for position, dim in enumerate(_shapes(contract)[name]):
            if cached & set(addends(dim)):
                kept = [np.full(size_of(part, sizes), part not in cached) for part in addends(dim)]
                array = np.compress(np.concatenate(kept), array, axis=position)
        inputs[name] = array
    return Case(case.name, inputs, case.mask)


def _hidden(case: Case, contract: GraphContract, hidden: np.ndarray) -> Case:
    """Returns the case with padding at some positions of every row: in the mask, and in all that stands there.

    Args:
        hidden: bool, one entry per position of the mask.
    """
    assert case.mask is not None
    axes, sizes = _shapes(contract)[case.mask], axis_sizes(case, contract)
    parts = addends(axes[-1])
    ends = np.cumsum([size_of(part, sizes) for part in parts])
    of_dim = {axes[-1]: hidden, **dict(zip(parts, np.split(hidden, ends[:-1]), strict=True))}
    inputs = {}
    for name, array in case.inputs.items():
        for position, dim in enumerate(_shapes(contract)[name]):
            if isinstance(dim, str) and dim in of_dim:
                where = of_dim[dim].reshape(-1, *[1] * (array.ndim - position - 1))
                array = np.where(where, array.dtype.type(_padding(name, case, contract)), array)
        inputs[name] = array
    return Case(case.name, inputs, case.mask)


def _ragged(case: Case, contract: GraphContract) -> Case:
    """Returns the case with the second half of its first row masked, unless rows differ in length already."""
    try:
        axes, batch = _token_axes(case, contract), batch_axis(contract)
    except Inapplicable:
        return case
    if axes != (_shapes(contract)[case.mask or ""][-1],):
        return case  # the mask covers a cache, too; such cases have their own padding
    length, rows = _size(case, contract, axes[0]), _size(case, contract, batch)
    assert case.mask is not None
    padded = not case.inputs[case.mask].all()
    if padded or _shapes(contract)[case.mask][0] != batch or length < 2:
        return case
    tail = np.arange(length) >= (length + 1) // 2
    first = (np.arange(rows) == 0).reshape(-1, *[1] * (case.inputs[case.mask].ndim - 1))
    return _masked(case, contract, first & tail)


def _masked(case: Case, contract: GraphContract, where: np.ndarray) -> Case:
    """Returns the case with more positions masked; inputs of the mask's axes hold padding there."""
    assert case.mask is not None
    axes = _shapes(contract)[case.mask]
    inputs = {}
    for name, array in case.inputs.items():
        if _shapes(contract)[name] == axes:
            array = np.where(where, array.dtype.type(_padding(name, case, contract)), array)
        inputs[name] = array
    return Case(case.name, inputs, case.mask)


def _padding(name: str, case: Case, contract: GraphContract) -> int:
    vocabulary = contract.vocabularies.get(name)
    return 0 if vocabulary is None or name == case.mask else vocabulary.padding


def _take(case: Case, contract: GraphContract, picks: Picks) -> Case:
    shapes = _shapes(contract)
    return Case(case.name, {name: _at(array, shapes[name], picks) for name, array in case.inputs.items()}, case.mask)


def _pick(outputs: Mapping[str, np.ndarray], contract: GraphContract, picks: Picks) -> dict[str, np.ndarray]:
    shapes = {spec.name: spec.shape for spec in contract.outputs}
    return {name: _at(array, shapes.get(name, ()), picks) for name, array in outputs.items()}


def _require_positions(outputs: Mapping[str, np.ndarray], contract: GraphContract, picks: Picks) -> None:
    for spec in contract.outputs:
        array = outputs.get(spec.name)
        if array is None:
            continue  # which is told where names are compared
        least = [int(picks[str(dim)].max()) + 1 if dim in picks else 0 for dim in spec.shape]
        if array.ndim != len(least) or any(size < n for size, n in zip(array.shape, least, strict=True)):
            raise VerificationError(
                f"{spec.name} is {list(array.shape)}, expected {list(spec.shape)} with at least {least} positions."
            )


def _at(array: np.ndarray, shape: Sequence[int | str], picks: Picks) -> np.ndarray:
    for position, dim in enumerate(shape):
        if dim in picks and position < array.ndim and array.shape[position] > 1:
            array = np.take(array, picks[str(dim)], axis=position)
    return array


def _real(case: Case, contract: GraphContract) -> dict[str, np.ndarray]:
    """Returns where outputs are real. A size of 1 stands for "along all of this axis"."""
    if case.mask is None:
        return {}
    mask, axes = case.inputs[case.mask], _shapes(contract)[case.mask]
    sizes = axis_sizes(case, contract)
    return {spec.name: real_positions(mask, axes, spec.shape, sizes) for spec in contract.outputs}


def _size(case: Case, contract: GraphContract, axis: str) -> int:
    shapes = _shapes(contract)
    name = next(name for name in case.inputs if axis in shapes[name])
    return int(case.inputs[name].shape[shapes[name].index(axis)])


def _shapes(contract: GraphContract) -> dict[str, tuple[int | str, ...]]:
    return {spec.name: spec.shape for spec in contract.inputs}
