"""The questions: are two runners the same function, are files what was recorded, does a subject keep its promises?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onnxport.verify.cases import Case, require_cases
from onnxport.verify.checks import filed_under, load_check
from onnxport.verify.contract import FileRecord, GraphContract
from onnxport.verify.errors import VerificationError
from onnxport.verify.inspection import Inspection, Unavailable
from onnxport.verify.probe import Probe
from onnxport.verify.report import CheckResult, Report
from onnxport.verify.runners import Runner
from onnxport.verify.subject import Subject
from onnxport.verify.suites import in_suite
from onnxport.verify.tolerance import Criterion
from onnxport.verify.trial import Trial

# What reads only the file comes first: it costs little, and tells why a session would not open.
_FILE_CHECKS = ("graph.checker", "graph.opset", "fusion.expected", "graph.names", "graph.axes")
_SESSION_CHECKS = ("session.loads", "session.provider")
_VALUE_CHECKS = ("outputs.finite", "outputs.sensitive")
_PROBE_CHECKS = ("rows.independent", "padding.invariant", "iobinding.match", "inputs.rejected")
# These open sessions of their own, so they come when the subject's is released.
_REOPENING_CHECKS = ("levels.match", "reload.match", "outputs.sensitive/power")


def verify(
    reference: Runner,
    candidate: Runner,
    cases: Sequence[Case],
    criterion: Criterion,
    *,
    contract: GraphContract | None = None,
    component: str = "model",
    variant: str = "candidate",
) -> Report:
    """Compares two runners over all cases.

    Args:
        reference, candidate: what is compared; the reference is the measure.
        cases: each is run once on both.
        criterion: how far the candidate may be from the reference.
        contract: needed where a case has a mask: its axis names tell which positions of an output are padding.
        component, variant: what the results are filed under.

    Raises:
        VerificationError: there are no cases, they do not fit the contract, or the reference fails.
    """
    trial = Trial(reference, candidate, cases, criterion, contract=contract, component=component, variant=variant)
    provider = getattr(candidate, "provider", None)
    results = [result for check in ("outputs.match", *_VALUE_CHECKS) for result in load_check(check)(trial)]
    return Report.of(results, criterion, provider=provider)


def verify_files(root: Path, records: Sequence[FileRecord]) -> list[CheckResult]:
    """Compares the files below `root` with what was recorded of them; one result per file.

    Raises:
        VerificationError: `root` is no folder.
    """
    if not root.is_dir():
        raise VerificationError(f"{root} is no folder. Give the folder of a bundle.")
    return load_check("files.sha256")(root, records)


def verify_subject(
    subject: Subject, reference: Runner, cases: Sequence[Case], *, golden: bool = False, suite: str = "standard"
) -> list[CheckResult]:
    """Puts the checks of a suite to one graph file. At most one session is alive at a time, and none afterwards.

    Checks that have nothing to go on (a graph that does not load) are skipped with the reason; what made them so fails.

    Args:
        subject: the file, and what is claimed about it.
        reference: the measure; `Recorded` outputs where PyTorch is not at hand, or not to be in memory.
        cases: each is run once.
        golden: `reference` replays golden tensors: results are filed under golden.match instead of outputs.match.
        suite: which checks are put (`suites.SMALLEST_SUITE`).

    Raises:
        VerificationError: as in `verify`, or there is no such suite.
    """
    require_cases(cases, subject.contract)
    probes = [check for check in _PROBE_CHECKS if in_suite(check, suite)]
    reopening = [check for check in _REOPENING_CHECKS if in_suite(check, suite)]
    values = ("golden.match" if golden else "outputs.match", *_VALUE_CHECKS)
    results: list[CheckResult] = []
    with Inspection(subject) as inspection:
        for check in (*_FILE_CHECKS, *_SESSION_CHECKS):
            try:
                results += load_check(check)(inspection)
            except Unavailable as e:
                results.append(inspection.result(check, "skip", str(e)))
        try:
            candidate = inspection.runner
        except Unavailable as e:
            left = dict.fromkeys(filed_under(check) for check in (*values, *probes, *reopening))
            return results + [inspection.result(check, "skip", str(e)) for check in left]
        trial = Trial(
            reference,
            candidate,
            cases,
            subject.criterion,
            contract=subject.contract,
            component=subject.component,
            variant=subject.variant,
        )
        for check in values:
            results += load_check(check)(trial)
        probe = Probe(subject, candidate, trial, suite)
        for check in probes:
            results += load_check(check)(probe)
    for check in reopening:
        results += load_check(check)(probe)
    return results
