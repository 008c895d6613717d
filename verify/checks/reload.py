"""reload.*: does the file on disk answer the same in a process of its own?"""

from __future__ import annotations

from onnxport.verify.errors import SessionError
from onnxport.verify.own_process import answers
from onnxport.verify.probe import Probe
from onnxport.verify.report import CheckResult
from onnxport.verify.runners import Recorded


def check_match(probe: Probe) -> list[CheckResult]:
    """A fresh process that has only numpy and ONNX Runtime loads the file and gives the reference's outputs."""
    try:
        found = answers(probe.subject, probe.few)
    except SessionError as e:
        return [probe.trial.result("reload.match", "fail", str(e))]
    return [probe.against_reference("reload.match", "in a process of its own", Recorded("the process", found))]
