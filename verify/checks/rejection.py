"""inputs.*: are wrong inputs refused, or do they give numbers?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx

from onnxport.verify.cases import Case
from onnxport.verify.contract import Vocabulary, addends
from onnxport.verify.model_file import read_model
from onnxport.verify.probe import Probe
from onnxport.verify.report import CheckResult

_WORD = 2**32
_LOOKUPS = {"Gather", "EmbedLayerNormalization"}
_SAME_IDS = {"Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"}

Inputs = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class _Fault:
    """Inputs that no caller means. `same_as`: what they are taken for by a known habit of the runtime, and `habit` why.

    What a graph gives by such a habit is documented and not the graph's fault; any other number is. `excuse` is asked
    for another one: why the habit decides only a part of the answer, None if it decides all of it.
    """

    what: str
    inputs: Inputs
    same_as: Inputs | None = None
    habit: str = ""
    excuse: Callable[[], str | None] = lambda: None


def check_rejected(probe: Probe) -> list[CheckResult]:
    """Every wrong input is an error, never a number. One result per kind of fault."""
    results = []
    for kind, make in _KINDS.items():
        faults = list(make(probe))
        results.append(_ask(probe, kind, faults))
    return results


def _ask(probe: Probe, kind: str, faults: list[_Fault]) -> CheckResult:
    if not faults:
        return probe.trial.result("inputs.rejected", "skip", f"{kind}: {_NO_PLACE[kind]}", case=kind)
    habits = []
    for fault in faults:
        answer = _answer(probe, fault.inputs)
        if answer is None:
            continue
        if fault.same_as is not None and _equal(answer, _answer(probe, fault.same_as)):
            habits.append(f"{fault.what} {fault.habit}")
            continue
        excuse = fault.excuse()
        if excuse is None:
            detail = f"{kind}: {fault.what} was not refused and gave {_shapes(answer)}, expected an error"
            return probe.trial.result("inputs.rejected", "fail", detail, case=kind)
        habits.append(f"{fault.what} {excuse}")
    if habits:
        return probe.trial.result("inputs.rejected", "skip", f"{kind}: {'; '.join(habits)}", case=kind)
    return probe.trial.result("inputs.rejected", "pass", f"{kind}: {len(faults)} tried, all refused", case=kind)


def _answer(probe: Probe, inputs: Inputs) -> dict[str, np.ndarray] | None:
    """Returns what the session gives, None for an error of any kind."""
    try:
        return probe.runner.run(Case("rejected", inputs))
    except Exception:  # noqa: BLE001  (an error is what is wanted)
        return None


def _equal(answer: Inputs, other: Inputs | None) -> bool:
    return other is not None and all(
        np.allclose(answer[name], other[name], rtol=1e-3, atol=1e-4, equal_nan=True) for name in answer
    )


def _missing(probe: Probe) -> Iterator[_Fault]:
    for name in probe.case.inputs:
        yield _Fault(f"no {name}", {other: array for other, array in probe.case.inputs.items() if other != name})


def _unknown(probe: Probe) -> Iterator[_Fault]:
    first = next(iter(probe.case.inputs.values()))
    yield _Fault("an input no_such_input", {**probe.case.inputs, "no_such_input": first})


def _dtype(probe: Probe) -> Iterator[_Fault]:
    for name, array in probe.case.inputs.items():
        for dtype in ("int32", "int64", "float32", "float64"):
            if array.dtype != dtype:
                yield _Fault(f"{name} as {dtype}", {**probe.case.inputs, name: array.astype(dtype)})


def _rank(probe: Probe) -> Iterator[_Fault]:
    for name, array in probe.case.inputs.items():
        yield _Fault(f"{name} of rank {array.ndim + 1}", {**probe.case.inputs, name: array[..., None]})
        if array.ndim:
            yield _Fault(f"{name} of rank {array.ndim - 1}", {**probe.case.inputs, name: array[0]})


def _size(probe: Probe) -> Iterator[_Fault]:
    """One more than each fixed size; what has the same axis grows with it, or the sizes would only contradict."""
    promised = {spec.name: spec.shape for spec in probe.contract.inputs}
    fixed = {name: axis.fixed for name, axis in probe.contract.axes.items() if axis.fixed is not None}
    for axis in dict.fromkeys(dim for shape in promised.values() for dim in shape if dim in fixed):
        inputs = dict(probe.case.inputs)
        for name, shape in promised.items():
            for position in (i for i, dim in enumerate(shape) if axis in addends(dim)):
                inputs[name] = _longer(inputs[name], position)
        yield _Fault(f"{axis} of {fixed[str(axis)] + 1}", inputs)
    for name, shape in promised.items():
        for position, dim in enumerate(shape):
            if isinstance(dim, int):
                longer = _longer(probe.case.inputs[name], position)
                yield _Fault(f"{name} of shape {list(longer.shape)}", {**probe.case.inputs, name: longer})


def _longer(array: np.ndarray, position: int) -> np.ndarray:
    return np.concatenate([array, np.take(array, [-1], axis=position)], axis=position)


def _above(probe: Probe) -> Iterator[_Fault]:
    for name, vocabulary in probe.contract.vocabularies.items():
        yield _Fault(f"{name} of {vocabulary.size}", _with_id(probe, name, vocabulary.size))


def _below(probe: Probe) -> Iterator[_Fault]:
    for name, vocabulary in probe.contract.vocabularies.items():
        last = vocabulary.size - 1
        yield _Fault(
            f"{name} of -1",
            _with_id(probe, name, -1),
            _with_id(probe, name, last),
            f"gives what {last} gives, as ONNX's Gather counts from the end; callers must refuse negative ids",
            partial(_excuse, probe, name, vocabulary),
        )
        yield _Fault(f"{name} of {-vocabulary.size - 1}", _with_id(probe, name, -vocabulary.size - 1))


def _excuse(probe: Probe, name: str, vocabulary: Vocabulary) -> str | None:
    """Why -1 may give another answer than the last id: the model also computes with the ids themselves.

    A text that ends where the largest id stands is another text with the last id in it than with -1, but the same with
    1 as with the negative id that finds it: if one such pair gives one answer, the table is counted from its end. No
    other id that -1 might be taken for (0, where ids are clipped) shows that.
    """
    size = vocabulary.size
    for other in (1, 2, 3):
        if other < size - 1 and other != vocabulary.padding:
            answer = _answer(probe, _with_id(probe, name, other - size))
            if answer is not None and _equal(answer, _answer(probe, _with_id(probe, name, other))):
                return (
                    f"is looked up from the end of the table, as {other - size} is, which gives what {other} gives; "
                    "callers must refuse negative ids"
                )
    if not probe.subject.is_onnx:
        return "is not refused; this format does not show what it is taken for; callers must refuse negative ids"
    readers = _readers(read_model(probe.subject.path).proto.graph, {name})
    if readers & _LOOKUPS and readers - _LOOKUPS - {"Shape"}:
        return "is not refused, and the graph also computes with the ids; callers must refuse negative ids"
    return None


def _readers(graph: onnx.GraphProto, same: set[str]) -> set[str]:
    """Returns the operators that read one of these values, or what only renames it; in branches and loops, too."""
    same, found = set(same), set()
    for node in graph.node:  # in the order in which they run
        if same & set(node.input):
            if node.op_type in _SAME_IDS:
                same |= set(node.output)
            else:
                found.add(node.op_type)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                found |= _readers(inner, same)
    return found


def _beyond_32_bits(probe: Probe) -> Iterator[_Fault]:
    for name, vocabulary in probe.contract.vocabularies.items():
        if probe.case.inputs[name].dtype == np.int64:
            last = vocabulary.size - 1
            yield _Fault(
                f"{name} of {_WORD + last}",
                _with_id(probe, name, _WORD + last),
                _with_id(probe, name, last),
                f"gives what {last} gives, as fused embeddings keep 32 bits of an id; callers must refuse such ids",
            )


def _with_id(probe: Probe, name: str, value: int) -> Inputs:
    """Returns the probe's inputs with that id at the first position, which is a real one."""
    array = probe.case.inputs[name].copy()
    array.flat[0] = value
    return {**probe.case.inputs, name: array}


def _shapes(answer: Inputs) -> str:
    return ", ".join(f"{name} {list(array.shape)}" for name, array in answer.items())


_KINDS: dict[str, Callable[[Probe], Iterator[_Fault]]] = {
    "missing input": _missing,
    "unknown name": _unknown,
    "wrong dtype": _dtype,
    "wrong rank": _rank,
    "wrong size": _size,
    "id above": _above,
    "id below": _below,
    "id beyond 32 bits": _beyond_32_bits,
}
_NO_IDS = "no input is known to hold ids"
_NO_PLACE = {
    **dict.fromkeys(_KINDS, "there is nothing to get wrong"),
    "wrong size": "no size is fixed",
    "id above": _NO_IDS,
    "id below": _NO_IDS,
    "id beyond 32 bits": _NO_IDS,
}
