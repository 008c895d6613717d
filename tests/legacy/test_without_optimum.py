"""Where Optimum's exporter is not installed, asking for it is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxport.exporters.cli.app import run
from onnxport.exporters.engines import ENGINES, choose_engines
from onnxport.exporters.recipe import Recipe

pytestmark = pytest.mark.skipif(
    not ENGINES["optimum"].missing, reason="Optimum's exporter is installed here: scripts/test runs these"
)


def test_the_extra_is_named_before_anything_is_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "no-such-place", str(tmp_path / "out"), "--engine", "optimum"]) == 2
    assert "(from a clone: pip install '.[export,legacy]') in an environment of its own" in capsys.readouterr().err


def test_auto_leaves_it_out() -> None:
    assert "optimum" not in [engine.name for engine in choose_engines(Recipe())]
