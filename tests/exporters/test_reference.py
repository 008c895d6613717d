"""The PyTorch model as a runner: what a forward raises is told as such, and a fault of the program is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onnxport.exporters.errors import SignatureError
from onnxport.exporters.exportable import Exportable
from onnxport.exporters.plain_module import load_plain_module
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.reference import TorchRunner, record, with_float64, with_invariants
from onnxport.exporters.signature import probe_contract
from onnxport.verify.suites import probe_case


class Raises(nn.Module):
    """A module that fails on inputs of fewer rows than it has seen before, as one with a baked batch does."""

    def __init__(self, module: nn.Module, least_rows: int, error: Callable[[], BaseException]) -> None:
        super().__init__()
        self.module, self.least_rows, self.error = module, least_rows, error

    def forward(self, features: Tensor) -> Any:
        if len(features) < self.least_rows:
            raise self.error()
        return self.module(features)


@pytest.fixture
def tagger(plain_modules: str) -> Exportable:
    return load_plain_module(f"{plain_modules}:tagger", Recipe())


def raising(exportable: Exportable, least_rows: int, error: Callable[[], BaseException]) -> Exportable:
    return replace(exportable, module=Raises(exportable.module, least_rows, error).eval())


@pytest.mark.parametrize(
    "error", [KeyError("rows"), TypeError("no rows"), AssertionError("rows"), AttributeError("rows"), OSError("rows")]
)
def test_whatever_a_forward_raises_is_the_modules_failure(tagger: Exportable, error: Exception) -> None:
    case = tagger.cases("quick")[0]
    with pytest.raises(SignatureError, match=f"PyTorch itself fails on case {case.name}: {type(error).__name__}") as it:
        TorchRunner(raising(tagger, 1000, lambda: error)).run(case)
    assert it.value.__cause__ is error
    narrow = raising(tagger, 2, lambda: error)
    recording = record(narrow, tagger.cases("standard"), lambda done, total: None)
    assert recording.refused, "a case of one row is left out and told"
    assert recording.cases
    told = with_float64(recording, raising(tagger, 1000, lambda: error)).checks[-1]
    assert f"does not run in float64: {type(error).__name__}" in told.detail


@pytest.mark.parametrize(
    "error", [MemoryError("no room"), RuntimeError("can't allocate memory: you tried"), SystemExit]
)
def test_what_is_no_fault_of_the_case_passes_through(tagger: Exportable, error: BaseException) -> None:
    kind = error if isinstance(error, type) else type(error)
    with pytest.raises(kind):
        TorchRunner(raising(tagger, 1000, lambda: error)).run(tagger.cases("quick")[0])
    with pytest.raises(kind):
        probe_contract(raising(tagger, 1000, lambda: error), 17)


def test_a_relation_that_a_forward_refuses_is_not_kept(tagger: Exportable) -> None:
    contract = probe_contract(tagger, 17)
    cases = tagger.cases("standard")
    rows = len(next(iter(probe_case(cases, contract).inputs.values())))
    module = raising(tagger, rows, lambda: KeyError("one row"))
    recording = record(module, cases, lambda done, total: None)
    invariants = with_invariants(recording, module, contract, Recipe()).invariants
    assert invariants is not None
    assert not invariants["rows.alone"].held
    assert "KeyError" in invariants["rows.alone"].detail
    assert invariants["rows.reordered"].held


def test_a_fault_of_the_program_says_nothing_of_the_model(tagger: Exportable, monkeypatch: pytest.MonkeyPatch) -> None:
    contract = probe_contract(tagger, 17)
    recording = record(tagger, tagger.cases("quick"), lambda done, total: None)

    def broken(self: Exportable, returned: Any) -> dict[str, torch.Tensor]:
        raise KeyError("a slip of ours")

    monkeypatch.setattr(Exportable, "named", broken)
    with pytest.raises(KeyError, match="a slip of ours"):
        with_invariants(recording, tagger, contract, Recipe())
    with pytest.raises(KeyError, match="a slip of ours"):
        record(tagger, tagger.cases("quick"), lambda done, total: None)
