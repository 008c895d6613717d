"""levels.*: does the graph answer the same however a server loads it?"""

from __future__ import annotations

import os

from onnxport.verify.errors import SessionError
from onnxport.verify.inspection import without_folder
from onnxport.verify.probe import Probe
from onnxport.verify.report import CheckResult
from onnxport.verify.runners import LEVELS, OrtRunner
from onnxport.verify.suites import SUITES

_LEVEL = "graph_optimization_level"
_THREADS = "intra_op_num_threads"


def check_match(probe: Probe) -> list[CheckResult]:
    """The reference's outputs at every level of ONNX Runtime's optimisations; in the full suite, with 1 and N threads.

    One session after the other, on a few cases. At its own level the subject has run on all cases already.
    """
    own = probe.subject.session_options.get(_LEVEL, "all")
    results = []
    for level in LEVELS:
        if level == own:
            results.append(probe.judge_outcomes("levels.match", f"level {level}", probe.trial.outcomes))
        else:
            results.append(_reopened(probe, f"level {level}", {_LEVEL: level}))
    if probe.suite == SUITES[-1]:
        for threads in sorted({1, os.cpu_count() or 1}):
            results.append(_reopened(probe, f"threads {threads}", {_THREADS: str(threads)}))
    return results


def _reopened(probe: Probe, how: str, options: dict[str, str]) -> CheckResult:
    subject = probe.subject
    try:
        runner = OrtRunner(
            subject.path, provider=subject.provider, session_options={**subject.session_options, **options}
        )
    except SessionError as e:
        return probe.trial.result("levels.match", "fail", f"{how}: {without_folder(str(e), subject.path)}")
    with runner:
        return probe.against_reference("levels.match", how, runner)
