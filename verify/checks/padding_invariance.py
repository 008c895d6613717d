"""padding.*: do padded positions change what is answered at real ones?"""

from __future__ import annotations

from onnxport.verify.checks.rows import kept_relations
from onnxport.verify.probe import Probe
from onnxport.verify.report import CheckResult


def check_invariant(probe: Probe) -> list[CheckResult]:
    """More padding on the right, on the left, and other values in it change nothing at real positions."""
    return kept_relations("padding.invariant", probe, ("padding.right", "padding.left", "padding.content"))
