from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnxport.exporters.cli.app import run
from onnxport.exporters.pipeline import export
from onnxport.exporters.plain_module import load_plain_module
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.reference import Recording, record, with_float64
from onnxport.verify import Report

FACTORIES = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.layer, self.tied = kind, nn.Linear(16, 8), nn.Linear(16, 8)
        self.tied.weight = self.layer.weight
        self.register_buffer("shift", torch.randn(8).half(), persistent=False)
        self.constant = torch.randn(8, 8)

    def forward(self, x):
        y = self.layer(x) + self.tied(x) + self.shift
        if self.kind == "constant":
            return y @ self.constant
        return y.float() if self.kind == "narrows" else y


def _made(kind):
    return Net(kind), {"x": torch.randn(2, 16)}, {"x": ("batch", 16)}


def plain():
    return _made("plain")


def constant():
    return _made("constant")


def narrows():
    return _made("narrows")
"""


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Recording, nn.Module]]:
    (tmp_path / "float64_nets.py").write_text(FACTORIES)
    monkeypatch.syspath_prepend(tmp_path)

    def recorded(factory: str, only: str | None = None) -> tuple[Recording, nn.Module]:
        exportable = load_plain_module(f"float64_nets:{factory}", Recipe())
        cases = [case for case in exportable.cases("standard") if only in (None, case.name)]
        recording = record(exportable, cases, lambda done, total: None)
        before = {name: tensor.clone() for name, tensor in _tensors(exportable.module).items()}
        recording = with_float64(recording, exportable)
        after = _tensors(exportable.module)
        assert {name: tensor.dtype for name, tensor in after.items()} == {n: t.dtype for n, t in before.items()}
        assert all(torch.equal(before[name], after[name]) for name in before)
        return recording, exportable.module

    return recorded


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def test_the_floor_is_that_of_float32_and_the_module_is_as_it_was(recorded) -> None:
    recording, module = recorded("plain")
    assert module.tied.weight is module.layer.weight
    precise = recording.runner.precise
    assert precise
    assert not recording.checks
    for case, outputs in precise.items():
        for name, exact in outputs.items():
            assert exact.dtype == np.float64
            assert 0 < np.abs(recording.runner.outputs[case][name] - exact).max() < 1e-5


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        ("constant", "the module does not run in float64: RuntimeError: "),
        ("narrows", "the module narrows its output output to torch.float32"),
    ],
)
def test_a_module_that_does_not_run_in_float64_is_a_skip_with_the_reason(factory: str, why: str, recorded) -> None:
    recording, _ = recorded(factory)
    (skip,) = recording.checks
    assert (skip.id, skip.verdict) == ("outputs.match", "skip")
    assert skip.detail.startswith(f"the noise floor is not measured: {why}")
    assert not recording.runner.precise


def test_a_case_of_a_larger_suite_alone_has_no_floor_and_says_so(recorded) -> None:
    recording, _ = recorded("plain", only="sizes.1")
    (skip,) = recording.checks
    assert skip.detail == "the noise floor is not measured: none of the cases is one of suite quick"


def test_full_exports_and_verifications_tell_the_floor(
    make_checkpoint: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = make_checkpoint("bert", "text-classification")
    bundle = export(checkpoint, tmp_path / "out", recipe=Recipe(variants=("base",), suite="full"))
    exported = bundle.report()
    assert exported is not None
    arguments = ["verify", str(tmp_path / "out"), "--against", str(checkpoint), "--json", "--suite"]
    found = {"export": exported}
    for suite in ("full", "standard"):
        assert run([*arguments, suite]) == 0
        found[suite] = Report.from_json(capsys.readouterr().out)
    floors = {
        name: {c.case: c.noise_floor for c in report.checks if c.id == "outputs.match" and c.noise_floor is not None}
        for name, report in found.items()
    }
    assert set(floors["export"]) == set(floors["full"])
    assert {"random.2x8", "padding.right"} <= set(floors["full"])
    assert all(0 < floor < 1e-4 for floor in floors["full"].values())
    assert not floors["standard"]
    assert run(["verify", str(tmp_path / "out"), "--json", "--suite", "full", "--rtol", "0.9", "--atol", "0.3"]) == 1
    too_much = Report.from_json(capsys.readouterr().out)
    assert {c.case for c in too_much.checks if c.verdict == "fail"} == {"power.weights"}
    for name in ("export", "full"):
        planted = {c.case: c.verdict for c in found[name].checks if (c.case or "").startswith("power.")}
        assert planted == {"power.mask": "pass", "power.swapped": "pass", "power.weights": "pass"}
