"""A case: one concrete set of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxport.verify.contract import GraphContract, TensorSpec, addends, size_of
from onnxport.verify.errors import VerificationError


@dataclass(frozen=True, eq=False)
class Case:
    """One concrete set of inputs.

    `mask` names the input whose zeros mark padded positions (usually attention_mask); None: every position is real.

    Raises:
        VerificationError: `mask` names no input of the case.
    """

    name: str
    inputs: Mapping[str, np.ndarray]
    mask: str | None = None

    def __post_init__(self) -> None:
        if self.mask is not None and self.mask not in self.inputs:
            raise VerificationError(
                f"Case {self.name} takes its mask from {self.mask!r}, but its inputs are {sorted(self.inputs)}. "
                "Name one of them, or None."
            )


def axis_sizes(case: Case, contract: GraphContract) -> dict[str, int]:
    """Returns the size that each named axis of the inputs has in the case."""
    sizes: dict[str, int] = {}
    for spec in contract.inputs:
        for dim, size in zip(spec.shape, case.inputs[spec.name].shape, strict=True):
            if isinstance(dim, str) and not _is_sum(dim):
                sizes.setdefault(dim, size)
    return sizes


def require_cases(cases: Sequence[Case], contract: GraphContract | None) -> None:
    """Makes sure that the cases are a question that can be put to a graph of that contract.

    Raises:
        VerificationError: there is no case; two share a name; a mask is named without a contract to align it by; inputs
            differ from the contract in name, dtype or rank; an axis has two sizes in one case, not its fixed one, or is
            the sum of one that no input has.
    """
    if not cases:
        raise VerificationError("There is no case to run, and nothing compared proves nothing. Give at least one case.")
    names = [case.name for case in cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise VerificationError(f"Several cases are called {', '.join(twice)}. Give every case a name of its own.")
    for case in cases:
        if contract is not None:
            _require_fit(case, contract)
        elif case.mask is not None:
            raise VerificationError(
                f"Case {case.name} has padded positions ({case.mask}), and only the axis names of a contract tell "
                "which positions of an output these are. Pass contract= (OrtRunner.contract reads it from a file)."
            )


def _require_fit(case: Case, contract: GraphContract) -> None:
    expected = {spec.name: spec for spec in contract.written().inputs}
    if set(case.inputs) != set(expected):
        raise VerificationError(
            f"Case {case.name} has the inputs {sorted(case.inputs)}; the contract asks for {sorted(expected)}. "
            "Give exactly these."
        )
    sizes: dict[str, tuple[int, str]] = {}
    for name, array in case.inputs.items():
        spec = expected[name]
        if str(array.dtype) != spec.dtype or array.ndim != len(spec.shape):
            raise VerificationError(
                f"Input {name} of case {case.name} is {array.dtype} {list(array.shape)}; the contract asks for "
                f"{spec.dtype} {list(spec.shape)}. Cast or reshape it."
            )
        _require_sizes(case, spec, array.shape, sizes)
    known = {axis: size for axis, (size, _) in sizes.items()}
    for name, array in case.inputs.items():
        for dim, size in zip(expected[name].shape, array.shape, strict=True):
            if not _is_sum(dim):
                continue
            unknown = [part for part in addends(dim) if isinstance(part, str) and part not in known]
            if unknown:
                raise VerificationError(
                    f"Input {name} has an axis {dim}, and no input has an axis {unknown[0]}; the others have "
                    f"{', '.join(known) or 'none'}. Name an axis that an input has by itself, or call the sum one axis."
                )
            if size != size_of(dim, known):
                raise VerificationError(
                    f"Input {name} of case {case.name} has the shape {list(array.shape)}: {dim} is {size} there and "
                    f"{size_of(dim, known)} in the other inputs. Give sizes that add up."
                )


def _is_sum(dim: int | str) -> bool:
    return len(addends(dim)) > 1


def _require_sizes(case: Case, spec: TensorSpec, shape: tuple[int, ...], sizes: dict[str, tuple[int, str]]) -> None:
    for dim, size in zip(spec.shape, shape, strict=True):
        if _is_sum(dim):
            continue  # when the sizes of all axes are known
        wanted, where = (dim, "the contract") if isinstance(dim, int) else sizes.setdefault(dim, (size, spec.name))
        if size != wanted:
            raise VerificationError(
                f"Input {spec.name} of case {case.name} has the shape {list(shape)}: axis {dim!r} is {size} there and "
                f"{wanted} in {where}. One axis has one size."
            )
