"""Plain modules: names, axes, cases, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxport.exporters.engines.torchscript import export_graph
from onnxport.exporters.errors import EngineError, RecipeError, SignatureError, SourceError
from onnxport.exporters.onnx_writer import write_model
from onnxport.exporters.plain_module import ResizedExample, load_plain_module
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.reference import TorchRunner, record
from onnxport.exporters.signature import probe_contract
from onnxport.verify import OrtRunner, Tolerance, verify
from onnxport.verify.contract import GraphContract

TOLERANCE = Tolerance(rtol=1e-3, atol=1e-4)


def exported(source: str, path: Path, recipe: Recipe) -> GraphContract:
    """Exports and compares at every case; returns the contract."""
    exportable = load_plain_module(source, recipe)
    contract = probe_contract(exportable, recipe.opset)
    traced = export_graph(exportable, contract)
    write_model(traced.skeleton, traced.weights, path)
    recording = record(exportable, exportable.cases("full"), lambda done, total: None)
    assert len(recording.cases) > 1
    report = verify(recording.runner, OrtRunner(path), recording.cases, TOLERANCE, contract=contract)
    assert report.verdict == "pass", [check for check in report.checks if check.verdict == "fail"]
    return contract


def test_embedding_bag(plain_modules: str, tmp_path: Path) -> None:
    contract = exported("plain_modules:bag_classifier", tmp_path / "m.onnx", Recipe())
    assert [(spec.name, spec.dtype, spec.shape) for spec in contract.inputs] == [
        ("input_ids", "int64", ("num_tokens",)),
        ("offsets", "int64", ("bags",)),
    ]
    assert [(spec.name, spec.shape) for spec in contract.outputs] == [("output", ("bags", 4))]


def test_axes_from_flags_name_the_strided_output_after_itself(plain_modules: str, tmp_path: Path) -> None:
    recipe = Recipe(axes={"pixels": ("batch", 3, "height", "width")})
    contract = exported("plain_modules:conv_net", tmp_path / "m.onnx", recipe)
    assert [(spec.name, spec.shape) for spec in contract.outputs] == [
        ("output_0", ("batch", 5)),
        ("output_1", ("batch", 8, "output_1_2", "output_1_3")),
    ]


def test_without_axes_everything_is_fixed(plain_modules: str, tmp_path: Path) -> None:
    contract = exported("plain_modules:conv_net", tmp_path / "m.onnx", Recipe())
    assert contract.axes == {}
    assert contract.inputs[0].shape == (2, 3, 16, 20)


def test_examples_made_by_a_callable(plain_modules: str, tmp_path: Path) -> None:
    contract = exported("plain_modules:tagger", tmp_path / "m.onnx", Recipe())
    assert contract.outputs[0].name == "tags"
    assert contract.outputs[0].shape == ("batch", "steps", 3)


def test_static_axis(plain_modules: str, tmp_path: Path) -> None:
    contract = exported("plain_modules:tagger", tmp_path / "m.onnx", Recipe(static={"steps": 9}))
    assert contract.written().inputs[0].shape == ("batch", 9, 6)
    assert contract.outputs[0].shape == ("batch", "steps", 3)
    assert list(contract.written().axes) == ["batch"]


def test_a_static_axis_that_the_module_cannot_vary(plain_modules: str, tmp_path: Path) -> None:
    contract = exported("plain_modules:only_sixteen", tmp_path / "m.onnx", Recipe(static={"n": 16}))
    assert contract.written().inputs[0].shape == (16,)
    assert contract.outputs[0].shape == (4, 4)


def test_inputs_are_bound_by_keyword(plain_modules: str, tmp_path: Path) -> None:
    contract = exported("plain_modules:swapped", tmp_path / "m.onnx", Recipe())
    assert [spec.name for spec in contract.inputs] == ["a", "b"]


def test_dropout_is_off_whatever_the_factory_left(plain_modules: str, tmp_path: Path) -> None:
    exportable = load_plain_module("plain_modules:bag_classifier", Recipe())
    assert not any(module.training for module in exportable.module.modules())
    exportable.module.get_submodule("dropout").train()
    with pytest.raises(SignatureError, match="dropout is in train mode"):
        TorchRunner(exportable).run(exportable.cases("quick")[0])


def test_data_dependent_control_flow_names_the_module_and_the_line(plain_modules: str, tmp_path: Path) -> None:
    exportable = load_plain_module("plain_modules:gated", Recipe())
    contract = probe_contract(exportable, 17)
    with pytest.raises(EngineError, match=r"gate \(Gate\), plain_modules.py line \d+.*torch.where"):
        export_graph(exportable, contract)


def test_an_axis_the_module_does_not_take_is_an_error(plain_modules: str) -> None:
    exportable = load_plain_module("plain_modules:only_sixteen", Recipe())
    with pytest.raises(SignatureError, match="itself fails on inputs of shape"):
        probe_contract(exportable, 17)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("plain_modules:raises", SourceError, "raised ValueError: no weights on this machine"),
        ("plain_modules:absent", SourceError, "cannot import plain_modules:absent"),
        ("no_such_package:f", SourceError, "No module named"),
        ("plain_modules:not_callable", SourceError, "is a int"),
        ("plain_modules:returns_a_module", SourceError, "returned ConvNet; expected"),
    ],
)
def test_bad_factories(plain_modules: str, source: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load_plain_module(source, Recipe())


@pytest.mark.parametrize(
    ("recipe", "error", "message"),
    [
        (Recipe(axes={"pixel": ("batch", 3, 16, 20)}), SignatureError, "did you mean 'pixels'"),
        (Recipe(axes={"pixels": ("batch",)}), SignatureError, "the example has shape"),
        (Recipe(axes={"pixels": ("batch", 4, 16, 20)}), SignatureError, "fix a size of 4"),
        (Recipe(axes={"pixels": ("n", 3, "n", 20)}), SignatureError, "axis 'n' is 2 in one"),
        (Recipe(static={"batch": 2}), RecipeError, "unknown axis 'batch'"),
    ],
)
def test_bad_axes(plain_modules: str, recipe: Recipe, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load_plain_module("plain_modules:conv_net", recipe)


def test_resizing_keeps_ids_in_range_and_offsets_sorted() -> None:
    make = ResizedExample(
        {"ids": np.array([5, 7, 9, 9]), "offsets": np.array([0, 2, 3])}, {"ids": ("n",), "offsets": ("bags",)}
    )
    made = make({"n": 9, "bags": 5}, np.random.default_rng(0))
    assert made["ids"].shape == (9,)
    assert set(made["ids"]) == {5, 7, 9}
    assert list(made["offsets"]) == sorted(made["offsets"])
    assert made["offsets"][0] == 0
