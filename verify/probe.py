"""A probe: a loaded graph with the cases to run on it, for checks that run it in other ways than the cases say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from onnxport.verify.cases import Case
from onnxport.verify.contract import GraphContract
from onnxport.verify.report import CheckResult
from onnxport.verify.runners import OrtRunner, Runner
from onnxport.verify.subject import Subject
from onnxport.verify.suites import few_cases, probe_case
from onnxport.verify.trial import CaseOutcome, Trial
from onnxport.verify.worst import Located, worst_of


@dataclass(frozen=True)
class Probe:
    """A subject, its session, and what the cases showed.

    `runner` is closed when checks that open sessions of their own are put; `trial` has its outcomes by then.
    """

    subject: Subject
    runner: OrtRunner
    trial: Trial
    suite: str

    @property
    def contract(self) -> GraphContract:
        """The subject's."""
        return self.subject.contract

    @cached_property
    def case(self) -> Case:
        """The case to make variations of."""
        return probe_case(self.trial.cases, self.contract)

    @cached_property
    def few(self) -> tuple[Case, ...]:
        """The cases for what is costly to ask."""
        return few_cases(self.trial.cases, self.suite, self.contract)

    def judge(self, check: str, what: str, found: Sequence[Located], case: str | None = None) -> CheckResult:
        """Returns one result for comparisons made for the same question."""
        worst = worst_of(found)
        numbers = {name: value for name, value in worst.numbers.items() if value is not None}
        return self.trial.result(check, worst.verdict, f"{what}: {worst.detail}", case=case, **numbers)

    def against_reference(self, check: str, what: str, candidate: Runner) -> CheckResult:
        """Runs the few cases on another candidate and returns one result for all of them."""
        subject = self.subject
        trial = Trial(
            self.trial.reference,
            candidate,
            self.few,
            subject.criterion,
            contract=subject.contract,
            component=subject.component,
            variant=subject.variant,
        )
        return self.judge_outcomes(check, what, trial.outcomes)

    def judge_outcomes(self, check: str, what: str, outcomes: Sequence[CaseOutcome]) -> CheckResult:
        """Returns one result for cases that were compared with the reference."""
        for outcome in outcomes:
            if outcome.failure is not None:
                return self.trial.result(check, "fail", f"{what}: {outcome.failure}", case=outcome.case)
        return self.judge(check, what, [Located(one.case, c) for one in outcomes for c in one.comparisons])
