"""rows.*: does a row of a batch depend on the rows beside it?"""

from __future__ import annotations

from collections.abc import Sequence

from onnxport.verify.errors import OnnxportError
from onnxport.verify.probe import Probe
from onnxport.verify.relations import Inapplicable, differences, variations
from onnxport.verify.report import CheckResult
from onnxport.verify.runners import one_line


def check_independent(probe: Probe) -> list[CheckResult]:
    """A row alone gives what it gives in the batch, and a batch in another order gives the same rows."""
    return kept_relations("rows.independent", probe, ("rows.alone", "rows.reordered"))


def kept_relations(check: str, probe: Probe, relations: Sequence[str]) -> list[CheckResult]:
    """Returns one result per relation; skipped where the reference itself does not keep it, or was not asked."""
    return [_kept(check, probe, relation) for relation in relations]


def _kept(check: str, probe: Probe, relation: str) -> CheckResult:
    case = probe.case
    known = probe.subject.invariants
    if known is None:
        reason = "whether the reference keeps it was not measured: export with --suite standard, or verify --against"
        return probe.trial.result(check, "skip", f"{relation}: {reason}")
    try:
        asked = variations(relation, case, probe.contract)
    except Inapplicable as e:
        return probe.trial.result(check, "skip", f"{relation}: {e}")
    if relation not in known:
        return probe.trial.result(check, "skip", f"{relation}: the reference was not asked, it had no case for it")
    if not known[relation].held:
        reason = f"{relation}: the reference itself does not keep it ({known[relation].detail})"
        return probe.trial.result(check, "skip", reason)
    try:
        found = differences(probe.runner, asked, probe.contract, probe.subject.criterion)
    except OnnxportError as e:  # a graph that cannot run or has outputs of another rank is an answer
        return probe.trial.result(check, "fail", f"{relation}: {one_line(e)}", case=case.name)
    return probe.judge(check, relation, found, case.name)
