from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.verify import CheckResult, Subject
from onnxport.verify.checks import load_check
from onnxport.verify.inspection import Inspection, Unavailable


def ask(check: str, subject: Subject) -> CheckResult:
    with Inspection(subject) as inspection:
        (result,) = load_check(check)(inspection)
    assert (result.id, result.component, result.variant) == (check, "model", "base")
    return result


def save_external(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save(model, path, save_as_external_data=True, location=f"{path.name}_data", size_threshold=0)
    return path.with_name(f"{path.name}_data")


CHECKS = ["graph.checker", "graph.opset", "graph.names", "graph.axes"]


@pytest.mark.parametrize("check", CHECKS)
def test_what_was_promised(check: str, build, save, subject_of) -> None:
    assert ask(check, subject_of(save(build()))).verdict == "pass"


# graph.checker


def test_invalid_graphs(build, save, subject_of) -> None:
    model = build()
    model.graph.node[1].input[0] = "nowhere"
    result = ask("graph.checker", subject_of(save(model)))
    assert result.verdict == "fail"
    assert "nowhere" in result.detail


def test_files_that_are_no_onnx(tmp_path: Path, subject_of) -> None:
    path = tmp_path / "model.onnx"
    assert ask("graph.checker", subject_of(path)).detail.startswith("model.onnx cannot be read: No such file")
    path.write_bytes(b"no protobuf")
    result = ask("graph.checker", subject_of(path))
    assert result.verdict == "fail"
    assert result.detail.startswith("model.onnx is not an ONNX model")
    with Inspection(subject_of(path)) as inspection, pytest.raises(Unavailable):
        load_check("graph.names")(inspection)


def test_external_data_in_place(build, tmp_path: Path, subject_of) -> None:
    save_external(build(), tmp_path / "model.onnx")
    result = ask("graph.checker", subject_of(tmp_path / "model.onnx"))
    assert (result.verdict, result.detail) == ("pass", "valid ONNX, 4 external tensors in place")


def test_external_data_that_is_missing_or_truncated(build, tmp_path: Path, subject_of) -> None:
    path = tmp_path / "model.onnx"
    data = save_external(build(), path)
    whole = data.read_bytes()
    data.write_bytes(whole[:-1])
    result = ask("graph.checker", subject_of(path))
    assert result.verdict == "fail"
    assert f"of model.onnx_data, which has {len(whole) - 1}" in result.detail
    data.unlink()
    result = ask("graph.checker", subject_of(path))
    assert result.detail == "external data model.onnx_data cannot be read: No such file or directory"
    (tmp_path / "elsewhere").write_bytes(whole)
    data.symlink_to(tmp_path / "elsewhere")
    assert ask("graph.checker", subject_of(path)).detail == (
        "external data model.onnx_data is a link or no regular file, which onnx refuses to load"
    )


def _redirect(path: Path, key: str, value: str) -> None:
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == key:
            entry.value = value
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("key", "value", "detail"),
    [
        ("location", "../model.onnx_data", "leads out of the folder"),
        ("location", "/etc/hostname", "leads out of the folder"),
        ("length", "8", "table has 8 bytes in model.onnx_data; its shape needs 256"),
        ("offset", "-4", "table lies at bytes -4"),
        ("offset", "1000000", "table lies at bytes 1000000 to 1000256"),
        ("offset", "many", "an entry for external data that cannot be understood"),
    ],
)
def test_external_entries_that_lie(key: str, value: str, detail: str, build, tmp_path: Path, subject_of) -> None:
    path = tmp_path / "model.onnx"
    save_external(build(), path)
    _redirect(path, key, value)
    result = ask("graph.checker", subject_of(path))
    assert result.verdict == "fail"
    assert detail in result.detail


def test_no_path_of_this_machine_in_a_detail(build, tmp_path: Path, subject_of) -> None:
    path = tmp_path / "model.onnx"
    data = save_external(build(), path)
    (tmp_path / "hard").hardlink_to(data)  # onnx refuses these, and names the whole path
    result = ask("graph.checker", subject_of(path))
    assert result.verdict == "fail"
    assert str(tmp_path) not in result.detail


def norm_model(opset: int) -> onnx.ModelProto:
    """RMS normalisation in ONNX's own operators; ONNX Runtime fuses it into an operator that ONNX does not have."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Pow", ["x", "two"], ["square"]),
        helper.make_node("ReduceMean", ["square"], ["mean"], axes=[-1]),
        helper.make_node("Add", ["mean", "epsilon"], ["shifted"]),
        helper.make_node("Sqrt", ["shifted"], ["root"]),
        helper.make_node("Div", ["x", "root"], ["normed"]),
        helper.make_node("Mul", ["normed", "gain"], ["y"]),
    ]
    constants = {"two": np.float32(2), "epsilon": np.float32(1e-6), "gain": np.ones(4, np.float32)}
    graph = helper.make_graph(
        nodes, "norm",
        [value("x", TensorProto.FLOAT, ["batch", 4])],
        [value("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def test_operators_that_only_onnx_runtime_has(tmp_path: Path, save, subject_of) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(str(save(norm_model(15))), options, providers=["CPUExecutionProvider"])
    model = onnx.load(tmp_path / "optimized.onnx")
    assert [node.op_type for node in model.graph.node] == ["SimplifiedLayerNormalization"]
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(model)
    result = ask("graph.checker", subject_of(tmp_path / "optimized.onnx"))
    assert result.verdict == "pass"
    assert "ai.onnx:SimplifiedLayerNormalization taken as ONNX Runtime's own" in result.detail
    save_external(model, tmp_path / "external.onnx")
    assert ask("graph.checker", subject_of(tmp_path / "external.onnx")).verdict == "pass"
    model.graph.node[0].input[0] = "nowhere"
    assert ask("graph.checker", subject_of(save(model, "broken.onnx"))).verdict == "fail"
    model.graph.node[0].op_type = "NoSuchOperator"
    assert ask("graph.checker", subject_of(save(model, "unknown.onnx"))).verdict == "fail"


# graph.opset


@pytest.mark.parametrize(
    ("opsets", "detail"),
    [
        ({"": 18}, "the file imports ai.onnx 18, expected ai.onnx 17"),
        ({"": 17, "com.microsoft": 1}, "the file imports ai.onnx 17, com.microsoft 1, expected ai.onnx 17"),
    ],
)
def test_wrong_opsets(opsets: dict[str, int], detail: str, build, save, subject_of) -> None:
    result = ask("graph.opset", subject_of(save(build(opsets=opsets))))
    assert (result.verdict, result.detail) == ("fail", detail)


def test_the_onnx_domain_has_two_names(build, save, subject_of, contract) -> None:
    promised = contract.model_copy(update={"opsets": {"ai.onnx": 17}})
    assert ask("graph.opset", subject_of(save(build()), contract=promised)).verdict == "pass"


@pytest.mark.parametrize("version", [2, onnx.IR_VERSION + 1])
def test_ir_versions_that_cannot_be_read(version: int, build, save, subject_of) -> None:
    result = ask("graph.opset", subject_of(save(build(ir_version=version))))
    assert (result.verdict, result.detail) == ("fail", f"IR version {version}, expected 3 to {onnx.IR_VERSION}")


def test_another_ir_version_than_promised(build, save, subject_of, contract) -> None:
    promised = contract.model_copy(update={"ir_version": 8})
    assert ask("graph.opset", subject_of(save(build(ir_version=8)), contract=promised)).verdict == "pass"
    result = ask("graph.opset", subject_of(save(build(ir_version=10)), contract=promised))
    assert (result.verdict, result.detail) == ("fail", "IR version 10, expected 8")


def test_no_opsets_promised(build, save, subject_of, contract) -> None:
    promised = contract.model_copy(update={"opsets": {}})
    assert ask("graph.opset", subject_of(save(build()), contract=promised)).verdict == "skip"


# graph.names


def test_swapped_inputs(build, save, subject_of) -> None:
    result = ask("graph.names", subject_of(save(build(inputs=("attention_mask", "input_ids")))))
    assert result.verdict == "fail"
    assert result.detail == "inputs are attention_mask, input_ids; expected input_ids, attention_mask, in this order"


@pytest.mark.parametrize("outputs", [("hidden",), ("pooled", "hidden"), ("hidden", "pooled", "float_mask")])
def test_other_outputs(outputs: tuple[str, ...], build, save, subject_of) -> None:
    result = ask("graph.names", subject_of(save(build(outputs=outputs))))
    assert result.verdict == "fail"
    assert result.detail == f"outputs are {', '.join(outputs)}; expected hidden, pooled, in this order"


def test_another_dtype(build, save, subject_of) -> None:
    model = build()
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.INT32
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    result = ask("graph.names", subject_of(save(model)))
    assert result.verdict == "fail"
    assert result.detail == "attention_mask is int32, expected int64; hidden is float16, expected float32"


def test_initializers_are_no_inputs(build, save, subject_of) -> None:
    model = build()
    model.graph.input.append(helper.make_tensor_value_info("weight", TensorProto.FLOAT, [4, 4]))  # as IR version 3 did
    assert ask("graph.names", subject_of(save(model))).verdict == "pass"


# graph.axes


@pytest.mark.parametrize(
    ("axes", "detail"),
    [
        ((2, "sequence"), "input_ids is [2, 'sequence'], expected ['batch', 'sequence']"),
        (("batch", "s18"), "input_ids is ['batch', 's18'], expected ['batch', 'sequence']"),
        (("batch", ""), "input_ids is ['batch', '?input_ids.1'], expected ['batch', 'sequence']"),
        (("sequence", "batch"), "input_ids is ['sequence', 'batch'], expected ['batch', 'sequence']"),
    ],
)
def test_wrong_axes(axes: tuple[str | int, ...], detail: str, build, save, subject_of) -> None:
    result = ask("graph.axes", subject_of(save(build(axes=axes))))
    assert result.verdict == "fail"
    assert detail in result.detail


def test_a_wrong_fixed_size_rank_or_no_shape(build, save, subject_of) -> None:
    model = build()
    model.graph.output[1].type.tensor_type.shape.dim[1].dim_value = 5
    assert "pooled is ['batch', 5], expected ['batch', 4]" in ask("graph.axes", subject_of(save(model))).detail
    model.graph.output[1].type.tensor_type.shape.dim.add().dim_value = 1
    assert "pooled is ['batch', 5, 1]" in ask("graph.axes", subject_of(save(model))).detail
    model.graph.output[1].type.tensor_type.ClearField("shape")
    assert "pooled is ['?pooled'], expected ['batch', 4]" in ask("graph.axes", subject_of(save(model))).detail


def test_a_missing_tensor_has_no_axes(build, save, subject_of) -> None:
    assert ask("graph.axes", subject_of(save(build(outputs=("hidden",))))).detail == "pooled is missing"


# .ort


@pytest.fixture
def ort_file(build, save, tmp_path: Path) -> Path:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(save(build())), options, providers=["CPUExecutionProvider"])
    return tmp_path / "model.ort"


@pytest.mark.parametrize("check", ["graph.names", "graph.axes"])
def test_ort_files_answer_through_their_session(check: str, ort_file: Path, subject_of, contract) -> None:
    assert ask(check, subject_of(ort_file)).verdict == "pass"
    renamed = contract.inputs[0].model_copy(update={"name": "ids", "shape": ("rows", "sequence")})
    wrong = contract.model_copy(update={"inputs": (renamed, contract.inputs[1])})
    assert ask(check, subject_of(ort_file, contract=wrong)).verdict == "fail"


def test_ort_files_hold_no_protos(ort_file: Path, subject_of) -> None:
    assert ask("graph.checker", subject_of(ort_file)).verdict == "skip"
    with Inspection(subject_of(ort_file)) as inspection, pytest.raises(Unavailable, match=r"model\.ort holds no ONNX"):
        load_check("graph.opset")(inspection)


def test_data_that_does_not_fill_its_shape(build, tmp_path: Path, subject_of) -> None:
    path = tmp_path / "model.onnx"
    big = numpy_helper.from_array(np.zeros((40, 40), np.float32), "spare")
    big.dims[0] = 41
    onnx.save(build(initializers=[big]), path)
    result = ask("graph.checker", subject_of(path))
    assert result.verdict == "fail"
    assert "spare has 6400 bytes of data; its shape needs 6560" in result.detail
