"""How an export ends that does not end well: the evidence is kept, and nobody waits for a child process."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onnxport.exporters.bundle import load_bundle
from onnxport.exporters.cli.console import Console
from onnxport.exporters.cli.report_files import print_annotations
from onnxport.exporters.errors import VerificationFailed
from onnxport.exporters.pipeline import export
from onnxport.exporters.progress import SILENT, Stage
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.variants import VariantBuilder

HOPELESS = Recipe(variants=("base",), suite="quick", rtol=0, atol=0)


class Listener:
    """Calls `heard` with the name of every stage that ends."""

    def __init__(self, heard: Callable[[str], None]) -> None:
        self.heard = heard

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        with SILENT.stage(name) as stage:
            yield stage
        self.heard(name)


def test_what_is_called_out_failed_and_is_no_bundle_stays(plain_modules: str, tmp_path: Path) -> None:
    (tmp_path / "out.failed").write_text("mine")
    with pytest.raises(VerificationFailed, match=r"the failed bundle is in out.failed-2") as caught:
        export("plain_modules:conv_net", tmp_path / "out", recipe=HOPELESS)
    assert caught.value.path == tmp_path / "out.failed-2"
    assert load_bundle(tmp_path / "out.failed-2").manifest.verification.verdict == "fail"
    assert (tmp_path / "out.failed").read_text() == "mine"
    assert not (tmp_path / "out").exists()


def test_a_failed_bundle_that_cannot_be_kept_does_not_hide_why_it_failed(
    plain_modules: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose_the_bundle(stage: str) -> None:
        if stage == "Bundle":
            (area,) = tmp_path.glob(".out.onnxport-*")
            shutil.rmtree(area / "work" / "bundle")

    with pytest.raises(VerificationFailed, match=r"checks, in base.*could not be kept: ") as caught:
        export("plain_modules:conv_net", tmp_path / "out", recipe=HOPELESS, progress=Listener(lose_the_bundle))
    assert caught.value.path is None
    assert caught.value.report.verdict == "fail"
    assert list(tmp_path.iterdir()) == []
    print_annotations(Console(), caught.value.report, None, None)
    assert "::error title=outputs.match" in capsys.readouterr().err


def test_an_interrupt_does_not_wait_for_a_slow_fusion(
    plain_modules: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, started = tmp_path / "slow.py", tmp_path / "started"
    script.write_text(f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\ntime.sleep(600)")

    def prepare(builder: VariantBuilder, names: object) -> None:
        builder.children.run("runpy:run_path", builder.work_dir, path_name=str(script))

    def interrupt(stage: str) -> None:
        if stage.startswith("Reference"):
            while not started.exists():
                time.sleep(0.02)
            raise KeyboardInterrupt

    monkeypatch.setattr(VariantBuilder, "prepare", prepare)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        export("plain_modules:conv_net", tmp_path / "out", progress=Listener(interrupt))
    assert time.monotonic() - begun < 300
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slow.py", "started"]
