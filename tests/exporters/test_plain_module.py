"""Plain modules: names, axes, cases, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxport.exporters.engines.torchscript import export_graph
from onnxport.exporters.errors import EngineError, OnnxportError, RecipeError, SignatureError, SourceError
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


@pytest.mark.parametrize("name", ["interleaved", "expm1", "enlarged", "enlarged_linearly", "pyramid_pooling"])
def test_operators_that_torch_does_not_write_right(plain_modules: str, tmp_path: Path, name: str) -> None:
    exported(f"plain_modules:{name}", tmp_path / "m.onnx", Recipe())


@pytest.mark.parametrize("opset", [17, 18])
def test_antialiasing_by_a_factor_is_refused(plain_modules: str, tmp_path: Path, opset: int) -> None:
    with pytest.raises(EngineError, match="give interpolate a size instead of a scale_factor"):
        exported(f"{plain_modules}:resized_by_factor", tmp_path / "m.onnx", Recipe(opset=opset))


@pytest.mark.parametrize("name", ["shrunk", "resized"])
def test_antialiasing_that_matters_needs_opset_18(plain_modules: str, tmp_path: Path, name: str) -> None:
    exported(f"plain_modules:{name}", tmp_path / "m.onnx", Recipe(opset=18))
    with pytest.raises(EngineError, match=r"antialiasing needs opset 18, asked 17; choose opset 18 \(--opset\)"):
        exported(f"plain_modules:{name}", tmp_path / "m.onnx", Recipe())


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
        ("plain_modules:bag_clasifier", SourceError, "did you mean 'bag_classifier'"),
        ("no_such_package:f", SourceError, "No module named"),
        ("plain_modules.py:conv_net", SourceError, "did you mean 'plain_modules:conv_net'"),
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
    example = {"ids": np.array([9, 5, 7, 9]), "offsets": np.array([0, 2, 3]), "flags": np.array([True, False])}
    make = ResizedExample(example, {"ids": ("n",), "offsets": ("bags",), "flags": ("n",)})
    rng = np.random.default_rng(0)
    first, second = make({"n": 9, "bags": 5}, rng), make({"n": 9, "bags": 5}, rng)
    assert first["ids"].shape == (9,)
    assert set(first["ids"]) <= {5, 7, 9}
    assert list(first["offsets"]) == sorted(first["offsets"])
    assert first["offsets"][0] == 0
    assert max(first["offsets"]) <= 3
    assert {name: array.dtype for name, array in first.items()} == {name: a.dtype for name, a in example.items()}
    assert any(list(first[name]) != list(second[name]) for name in ("ids", "offsets"))


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("frozen_ids", r"the module itself \(FrozenIds\), plain_modules.py line \d+: a tensor's value"),
        ("frozen_numpy", r"the module itself \(FrozenNumpy\), plain_modules.py line \d+: a tensor's value"),
        ("frozen_scale", r"plain_modules.py line \d+: a tensor's value"),
        ("branch_equal", r"BranchEqual\), plain_modules.py line \d+"),
        ("branch_allclose", r"BranchAllclose\), plain_modules.py line \d+"),
        ("branch_nonzero", r"BranchNonzero\), plain_modules.py line \d+"),
        ("branch_item", r"BranchItem\), plain_modules.py line \d+"),
        ("branch_loop", r"BranchLoop\), plain_modules.py line \d+"),
    ],
)
def test_an_input_that_the_trace_would_freeze(plain_modules: str, factory: str, message: str) -> None:
    exportable = load_plain_module(f"plain_modules:{factory}", Recipe())
    with pytest.raises(EngineError, match=message):
        export_graph(exportable, probe_contract(exportable, 17))


def test_an_input_that_no_warning_betrays_but_no_node_reads(plain_modules: str) -> None:
    exportable = load_plain_module("plain_modules:hidden_read", Recipe())
    with pytest.raises(EngineError, match="does not read input 'steps', although PyTorch's result depends on it"):
        export_graph(exportable, probe_contract(exportable, 17))


def test_a_buffer_that_becomes_a_number_is_no_data(plain_modules: str, tmp_path: Path) -> None:
    exported("plain_modules:buffer_as_number", tmp_path / "m.onnx", Recipe())


def test_examples_of_size_one_and_equal_sizes_are_traced_at_others(plain_modules: str, tmp_path: Path) -> None:
    recipe = Recipe(axes={"a": ("rows", "columns"), "b": ("columns", "rows")})
    assert load_plain_module("plain_modules:ones", recipe).example == {"rows": 2, "columns": 3}
    contract = exported("plain_modules:ones", tmp_path / "m.onnx", recipe)
    assert contract.outputs[0].shape == ("rows", "rows")


def test_any_number_of_axes(plain_modules: str, tmp_path: Path) -> None:
    contract = exported("plain_modules:six_axes", tmp_path / "m.onnx", Recipe())
    assert contract.outputs[0].shape == ("a", "b", "c", "d", "e", "f")


def test_extra_outputs_are_for_checkpoints(plain_modules: str) -> None:
    with pytest.raises(SignatureError, match="--output asks a checkpoint"):
        load_plain_module("plain_modules:tagger", Recipe(outputs=("hidden_states",)))


def test_a_module_that_changes_its_input_in_place(plain_modules: str, tmp_path: Path) -> None:
    exported("plain_modules:in_place", tmp_path / "m.onnx", Recipe())
    exportable = load_plain_module("plain_modules:clamps_its_input", Recipe())
    case = exportable.cases("quick")[0]
    before = case.inputs["x"].copy()
    TorchRunner(exportable).run(case)
    np.testing.assert_array_equal(case.inputs["x"], before)


def test_scalars_in_and_out(plain_modules: str, tmp_path: Path) -> None:
    contract = exported("plain_modules:scalar_input", tmp_path / "m.onnx", Recipe())
    assert {spec.name: spec.shape for spec in contract.inputs} == {"x": ("batch", 4), "scale": ()}


def test_axes_without_names_are_told(plain_modules: str) -> None:
    assert "--axes pixels=batch,3,16,20" in load_plain_module("plain_modules:conv_net", Recipe()).notes[0]


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("complex_parameter", "weight of .* is a complex64 tensor"),
        ("exits", "raised SystemExit"),
        ("positional_only", "inputs without names"),
        ("odd_axes", r"axes of 'x' are \[None, 4\]; expected one entry per dimension"),
        ("dict_axes", "expected one entry per dimension"),
    ],
)
def test_what_cannot_be_exported(plain_modules: str, factory: str, message: str) -> None:
    with pytest.raises(OnnxportError, match=message):
        load_plain_module(f"plain_modules:{factory}", Recipe())


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("random_output", "returns another 'output' when it runs again"),
        ("no_output", "returns no tensors"),
        ("half_output", "output 'output' is bfloat16"),
        ("output_named_like_input", "output 'x' has the name of an input"),
        ("one_name_twice", "one name among a.0, a.1, a.0"),
    ],
)
def test_outputs_that_no_graph_can_have(plain_modules: str, factory: str, message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        probe_contract(load_plain_module(f"plain_modules:{factory}", Recipe()), 17)


def test_parameters_in_double_precision_are_converted_and_it_is_said(plain_modules: str) -> None:
    assert "float64 are converted to float32" in load_plain_module("plain_modules:double", Recipe()).notes[0]


def test_forward_that_switches_to_train_mode(plain_modules: str) -> None:
    exportable = load_plain_module("plain_modules:trains_itself", Recipe())
    with pytest.raises(SignatureError, match="in train mode"):
        record(exportable, exportable.cases("standard"), lambda done, total: None)


def test_a_module_that_switches_its_algorithm(plain_modules: str) -> None:
    exportable = load_plain_module("plain_modules:switches_itself", Recipe(axes={"x": ("batch", "length")}))
    with pytest.raises(SignatureError, match="algorithm of the module was 'sparse' and is 'full' after short") as told:
        probe_contract(exportable, 17)
    assert "keep 'sparse' by a length at which it never switches (--static length=N)" in str(told.value)


def test_a_module_that_switches_its_algorithm_at_lengths_that_it_is_never_asked(
    plain_modules: str, tmp_path: Path
) -> None:
    recipe = Recipe(axes={"x": ("batch", "length")}, static={"length": 20})
    assert exported("plain_modules:switches_itself", tmp_path / "m.onnx", recipe).axes["length"].fixed == 20
