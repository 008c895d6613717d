"""Engine "auto": the first engine whose result verifies makes the component, and the bundle says what was tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxport.exporters import export
from onnxport.exporters.engines import choose_engines
from onnxport.exporters.errors import RecipeError, VerificationFailed
from onnxport.exporters.recipe import Recipe

AXES = {"x": ("batch", "length")}


def test_an_engine_whose_graph_does_not_verify_is_left_for_the_next(plain_modules: str, tmp_path: Path) -> None:
    bundle = export("plain_modules:first_half", tmp_path / "out", recipe=Recipe(axes=AXES))
    component = bundle.component()
    assert component.engine == bundle.manifest.toolchain.engine == "dynamo"
    (left,) = component.attempts
    assert left.engine == "torchscript"
    assert "verification failed" in left.reason
    assert "outputs.match" in left.reason
    assert bundle.manifest.recipe.engine == "auto"


def test_the_first_engine_is_taken_at_its_word_when_asked_for(plain_modules: str, tmp_path: Path) -> None:
    with pytest.raises(VerificationFailed):
        export("plain_modules:first_half", tmp_path / "out", recipe=Recipe(axes=AXES, engine="torchscript"))


def test_where_no_engine_verifies_what_was_made_is_kept_as_failed(plain_modules: str, tmp_path: Path) -> None:
    with pytest.raises(VerificationFailed) as failed:
        export("plain_modules:unrolled", tmp_path / "out", recipe=Recipe(axes=AXES))
    assert failed.value.path == tmp_path / "out.failed"
    assert not (tmp_path / "out").exists()


def test_an_engine_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxport.exporters.engines.installed_version", lambda package: None)
    with pytest.raises(RecipeError, match=r"engine optimum needs optimum-onnx.*onnxport\[export,legacy\]"):
        choose_engines(Recipe(engine="optimum"))
    assert [engine.name for engine in choose_engines(Recipe())] == ["torchscript"]
