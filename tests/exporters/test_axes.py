from __future__ import annotations

from onnxport.exporters.axes import axis_range
from onnxport.verify.contract import AxisRange


def test_a_static_axis_has_its_own_size_alone() -> None:
    assert axis_range("sequence", {"batch": 3}, 2, 64) == AxisRange(min=2, max=64)
    assert axis_range("batch", {"batch": 3}, 2, 64) == AxisRange(min=3, max=3)
    assert axis_range("batch", {}) == AxisRange(min=1, max=None)
