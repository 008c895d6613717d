"""A trial: one candidate against one reference, case by case. Only numbers are kept, so outputs may be large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from onnxport.verify.cases import Case, axis_sizes, require_cases
from onnxport.verify.compare import Comparison, compare
from onnxport.verify.contract import GraphContract
from onnxport.verify.errors import OnnxportError, VerificationError
from onnxport.verify.noise_floor import Noise, measure_noise
from onnxport.verify.padding import real_positions
from onnxport.verify.report import CheckResult, Verdict
from onnxport.verify.runners import Recorded, Runner, one_line
from onnxport.verify.tolerance import Criterion, Statistics


@dataclass(frozen=True)
class CaseOutcome:
    """What one case showed. `failure` says why the candidate gave no outputs; then there are no comparisons.

    `noise` is by output, for those that the reference has in float64 too.
    """

    case: str
    comparisons: tuple[Comparison, ...] = ()
    failure: str | None = None
    noise: Mapping[str, Noise] = field(default_factory=dict)


class Trial:
    """One candidate against one reference.

    Args:
        reference, candidate: what is compared.
        cases: every case is run once on each.
        criterion: how far the candidate may be from the reference.
        contract: names, axes and dtypes; None: the reference's names and dtypes hold, and no case may have a mask.
        component, variant: what the results are filed under.

    Raises:
        VerificationError: the cases do not fit (`require_cases`).
    """

    def __init__(
        self,
        reference: Runner,
        candidate: Runner,
        cases: Sequence[Case],
        criterion: Criterion,
        *,
        contract: GraphContract | None,
        component: str,
        variant: str,
    ) -> None:
        require_cases(cases, contract)
        self.reference = reference
        self.candidate = candidate
        self.cases = tuple(cases)
        self.criterion = criterion
        self.contract = contract
        self.component = component
        self.variant = variant

    @cached_property
    def outcomes(self) -> tuple[CaseOutcome, ...]:
        """Every case, run and compared.

        Raises:
            VerificationError: the reference failed, or does not fit the contract or the criterion.
        """
        return tuple(self._run(case) for case in self.cases)

    def result(self, check: str, verdict: Verdict, detail: str, **fields: Any) -> CheckResult:
        """Returns a result of this trial; `fields` are further fields of CheckResult."""
        return CheckResult(
            id=check, component=self.component, variant=self.variant, verdict=verdict, detail=detail, **fields
        )

    def _run(self, case: Case) -> CaseOutcome:
        expected = self._reference_outputs(case)
        try:
            found = self.candidate.run(case)
        except Exception as e:  # noqa: BLE001  (a runner may be anything, and its failure is an answer)
            return CaseOutcome(case.name, failure=one_line(e))
        specs = {spec.name: spec for spec in self.contract.outputs} if self.contract else {}
        dtypes = {name: spec.dtype for name, spec in specs.items()}
        real = self._real(case, expected)
        comparisons = compare(expected, found, self.criterion, real=real, dtypes=dtypes)
        precise = self.reference.precise.get(case.name, {}) if isinstance(self.reference, Recorded) else {}
        noise = {
            name: measured
            for name in (c.output for c in comparisons if c.compared and c.output in precise)
            if (measured := measure_noise(expected[name], found[name], precise[name], (real or {}).get(name)))
        }
        return CaseOutcome(case.name, tuple(comparisons), noise=noise)

    def _reference_outputs(self, case: Case) -> Mapping[str, np.ndarray]:
        try:
            outputs = self.reference.run(case)
        except OnnxportError:
            raise
        except Exception as e:
            raise VerificationError(
                f"The reference {self.reference.name} failed on case {case.name}: {one_line(e)}. "
                "Drop the case, or mend the reference."
            ) from e
        if not outputs:
            raise VerificationError(
                f"The reference {self.reference.name} gave no outputs for case {case.name}, expected some. Mend it."
            )
        if isinstance(self.criterion, Statistics) and (unknown := set(self.criterion.decisions) - set(outputs)):
            raise VerificationError(
                f"Decisions are to be taken on {', '.join(sorted(unknown))}, and the reference has the outputs "
                f"{', '.join(outputs)}. Name one of these."
            )
        return outputs

    def _real(self, case: Case, expected: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """Returns where the outputs are real; None: the case has no padding."""
        if self.contract is None:
            return None
        shapes = {spec.name: spec.shape for spec in self.contract.outputs}
        for name, array in expected.items():
            if name not in shapes or len(shapes[name]) != array.ndim:
                told = f"{name} {list(shapes[name])}" if name in shapes else f"only {', '.join(shapes)}"
                raise VerificationError(
                    f"The reference {self.reference.name} gave {name} {list(array.shape)} for case {case.name}, and "
                    f"the contract has {told}. Give the contract of this model."
                )
        if case.mask is None:
            return None
        mask_axes = next(spec.shape for spec in self.contract.inputs if spec.name == case.mask)
        mask = case.inputs[case.mask]
        sizes = axis_sizes(case, self.contract)
        return {name: real_positions(mask, mask_axes, shapes[name], sizes) for name in expected}
