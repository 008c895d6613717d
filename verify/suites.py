"""Suites: which checks are put, and on how many cases."""

from __future__ import annotations

from collections.abc import Sequence

from onnxport.verify.cases import Case
from onnxport.verify.contract import GraphContract
from onnxport.verify.errors import VerificationError

SUITES = ("quick", "standard", "full")
"""Each one has all of those before it."""

SMALLEST_SUITE: dict[str, str] = {
    "files.sha256": "quick",
    "graph.checker": "quick",
    "graph.opset": "quick",
    "graph.names": "quick",
    "graph.axes": "quick",
    "session.loads": "quick",
    "session.provider": "quick",
    "outputs.match": "quick",
    "outputs.finite": "quick",
    "outputs.sensitive": "quick",
    "golden.match": "quick",
    "fusion.expected": "quick",
    "metric.kept": "quick",  # where a data set is given
    "rows.independent": "standard",
    "padding.invariant": "standard",
    "iobinding.match": "standard",
    "levels.match": "standard",
    "inputs.rejected": "standard",
    "tokenizer.match": "standard",
    "reload.match": "full",
    "outputs.sensitive/power": "full",
}
"""Id of a check to the smallest suite that puts it."""


def in_suite(check: str, suite: str) -> bool:
    """Whether a suite puts that check.

    Raises:
        VerificationError: there is no such suite.
    """
    return SUITES.index(SMALLEST_SUITE[check]) <= SUITES.index(require_suite(suite))


def checks_at_export(suite: str) -> str:
    """Returns the suite whose checks an export puts to the cases of `suite`.

    What a server may do with a graph, and what follows from agreeing with PyTorch, would take a third of an export's
    time: it is asked when the bundle is verified, or when an export is told to be thorough.
    """
    return suite if suite == "full" else "quick"


def measures_noise(suite: str) -> bool:
    """Whether a suite runs the reference in float64 as well, which takes as long and twice the memory."""
    return suite == "full"


def require_suite(suite: str) -> str:
    """Returns the name; raises VerificationError when there is no such suite."""
    if suite not in SUITES:
        raise VerificationError(f"There is no suite {suite!r}. Ask for one of {', '.join(SUITES)}.")
    return suite


def probe_case(cases: Sequence[Case], contract: GraphContract) -> Case:
    """Returns the case to make variations of: without padding, every axis at 2 or more, and then the smallest.

    Where no case has all of that, the one that has the most of it.
    """
    return min(cases, key=lambda case: (_padded(case), _narrow_axes(case, contract), elements(case)))


def few_cases(cases: Sequence[Case], suite: str, contract: GraphContract) -> tuple[Case, ...]:
    """Returns the cases for what is costly to ask: in `full` all, else `probe_case` and the smallest padded one."""
    if suite == "full":
        return tuple(cases)
    first = probe_case(cases, contract)
    padded = sorted((case for case in cases if _padded(case) and case is not first), key=elements)
    return (first, *padded[:1])


def _padded(case: Case) -> bool:
    return case.mask is not None and not case.inputs[case.mask].all()


def _narrow_axes(case: Case, contract: GraphContract) -> int:
    """Number of dimensions with a named axis and a single position."""
    shapes = {spec.name: spec.shape for spec in contract.inputs}
    return sum(
        isinstance(dim, str) and size < 2
        for name, array in case.inputs.items()
        for dim, size in zip(shapes[name], array.shape, strict=True)
    )


def elements(case: Case) -> int:
    """Returns how many numbers the inputs of a case have together: its size, to order cases by."""
    return sum(array.size for array in case.inputs.values())
