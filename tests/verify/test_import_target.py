from __future__ import annotations

import sys

import pytest

from onnxport.verify.import_target import import_target
from onnxport.verify.report import Report


def test_functions_classes_and_their_methods() -> None:
    assert import_target("onnxport.verify.report:Report") is Report
    assert import_target("onnxport.verify.report:Report.to_json") is Report.to_json


def test_the_module_is_imported_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert import_target("colorsys:rgb_to_hsv")(0, 0, 0) == (0.0, 0.0, 0)
    assert "colorsys" in sys.modules


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("no_such_module:name", ModuleNotFoundError),
        ("onnxport.verify.report:no_such_name", AttributeError),
        ("onnxport.verify.report", ValueError),
    ],
)
def test_a_target_that_is_not_there(target: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        import_target(target)
