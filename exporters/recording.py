"""What a reference answered to the cases of one component, kept so that the reference itself can be let go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from onnxport.verify.cases import Case
from onnxport.verify.relations import Invariant
from onnxport.verify.report import CheckResult
from onnxport.verify.runners import Runner


@dataclass(frozen=True)
class Recording:
    """What a reference answered.

    Attributes:
        runner: gives the answers again (`verify.runners.Recorded`), or is the reference itself.
        cases: what was asked.
        refused: cases that could not be made or that the reference itself fails on, with the reason; they are not in
            `cases`.
        invariants: relation to whether the reference keeps it; None: not measured.
        checks: what was found out while the source was at hand; every refused case is among them, as a skip.
    """

    runner: Runner
    cases: tuple[Case, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    invariants: dict[str, Invariant] | None = None
    checks: tuple[CheckResult, ...] = ()

    def of_component(self, name: str) -> Recording:
        """Returns the recording with its checks filed under a component."""
        return replace(self, checks=tuple(check.model_copy(update={"component": name}) for check in self.checks))
