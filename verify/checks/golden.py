"""golden.*: does the candidate give what was stored when the bundle was made?"""

from __future__ import annotations

from onnxport.verify.checks.outputs import match_results
from onnxport.verify.report import CheckResult
from onnxport.verify.trial import Trial


def check_match(trial: Trial) -> list[CheckResult]:
    """As outputs.match, against golden tensors: every output of every stored case meets the criterion."""
    return match_results("golden.match", trial)
