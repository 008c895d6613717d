"""Facts of ONNX files, against graphs whose facts are known because they are built here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.exporters.onnx_facts import read_facts
from onnxport.verify.errors import ModelFileError


def linear(opset: int = 17, ir_version: int = 8, rows: int = 4, columns: int = 3) -> onnx.ModelProto:
    """x float32 [batch, rows] -> y float32 [batch, columns]: a MatMul, an Add and a contrib Gelu."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Add", ["xw", "b"], ["z"]),
        helper.make_node("Gelu", ["z"], ["y"], domain="com.microsoft"),
    ]
    weights = [
        numpy_helper.from_array(np.ones((rows, columns), np.float32), "w"),
        numpy_helper.from_array(np.zeros(columns, np.float32), "b"),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", columns])],
        weights,
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, producer_name="test", producer_version="1")
    model.ir_version = ir_version
    return model


def saved(model: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def test_facts_of_a_plain_file(tmp_path: Path) -> None:
    path = saved(linear(), tmp_path / "model.onnx")
    facts = read_facts(path)
    assert [(t.name, t.dtype, t.shape) for t in facts.inputs] == [("x", "float32", ("batch", 4))]
    assert [(t.name, t.dtype, t.shape) for t in facts.outputs] == [("y", "float32", ("batch", 3))]
    assert facts.opsets == {"": 17, "com.microsoft": 1}
    assert facts.ir_version == 8
    assert facts.producer == "test 1"
    assert facts.ops == {"ai.onnx:Add": 1, "ai.onnx:MatMul": 1, "com.microsoft:Gelu": 1}
    assert (facts.weights.count, facts.weights.elements) == (2, 15)
    assert facts.weights.bytes_by_dtype == {"float32": 60}
    assert (facts.external_data, facts.missing_data) == ((), ())
    assert facts.size_bytes == path.stat().st_size
    assert facts.portable
    assert facts.min_onnxruntime == "1.12"


def test_external_data_is_counted_and_not_needed(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(linear(rows=64, columns=64), path, save_as_external_data=True, location="model.onnx_data")
    data = tmp_path / "model.onnx_data"
    facts = read_facts(path)
    assert facts.external_data == ("model.onnx_data",)
    assert facts.size_bytes == path.stat().st_size + data.stat().st_size
    assert facts.weights.bytes_by_dtype == {"float32": 4 * (64 * 64 + 64)}
    data.unlink()
    facts = read_facts(path)
    assert facts.missing_data == ("model.onnx_data",)
    assert facts.size_bytes == path.stat().st_size


@pytest.mark.parametrize("location", ["../model.onnx_data", "{root}/model.onnx_data"])
def test_external_data_outside_the_folder_is_missing(tmp_path: Path, location: str) -> None:
    """ONNX Runtime refuses such a file, so it is not there for anyone who loads the graph."""
    (tmp_path / "model.onnx_data").write_bytes(bytes(100))
    (tmp_path / "graph").mkdir()
    model = linear()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location.format(root=tmp_path))
    facts = read_facts(saved(model, tmp_path / "graph" / "model.onnx"))
    assert facts.missing_data == facts.external_data != ()


def test_weights_of_subgraphs_count(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])
    inner = numpy_helper.from_array(np.ones(2, np.float16), "inner")
    branch = helper.make_graph([helper.make_node("Relu", ["x"], ["b"])], "branch", [], [value], [inner])
    model = linear()
    model.graph.node.append(helper.make_node("If", ["c"], ["i"], then_branch=branch, else_branch=branch))
    weights = read_facts(saved(model, tmp_path / "model.onnx")).weights
    assert (weights.count, weights.elements) == (4, 19)
    assert weights.bytes_by_dtype == {"float16": 8, "float32": 60}


@pytest.mark.parametrize(
    ("data_type", "dtype", "expected_bytes"),
    [
        (TensorProto.INT4, "int4", 3),
        (TensorProto.UINT4, "uint4", 3),
        (TensorProto.INT8, "int8", 5),
        (TensorProto.FLOAT8E4M3FN, "float8_e4m3fn", 5),
        (TensorProto.BFLOAT16, "bfloat16", 10),
        (TensorProto.BOOL, "bool", 5),
        (TensorProto.INT64, "int64", 40),
    ],
)
def test_bytes_of_weights(tmp_path: Path, data_type: int, dtype: str, expected_bytes: int) -> None:
    model = linear()
    model.graph.initializer.append(TensorProto(name="extra", data_type=data_type, dims=[5]))
    assert read_facts(saved(model, tmp_path / "model.onnx")).weights.bytes_by_dtype[dtype] == expected_bytes


def test_strings_of_weights(tmp_path: Path) -> None:
    model = linear()
    model.graph.initializer.append(helper.make_tensor("words", TensorProto.STRING, [2], [b"one", b"three"]))
    assert read_facts(saved(model, tmp_path / "model.onnx")).weights.bytes_by_dtype["string"] == 8


def test_layout_operators_are_not_portable(tmp_path: Path) -> None:
    """A convolution that ONNX Runtime serialises with every pass is tied to the machine that did it."""
    weight = numpy_helper.from_array(np.ones((16, 16, 3, 3), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16, 8, 8])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "all.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    facts = read_facts(tmp_path / "all.onnx")
    if "com.microsoft.nchwc:Conv" not in facts.ops:
        pytest.skip("this machine has no NCHWc kernels")
    assert not facts.portable
    assert read_facts(saved(model, tmp_path / "model.onnx")).portable


@pytest.mark.parametrize(
    ("opset", "ir_version", "release"),
    [
        (11, 6, "1.0"), (14, 7, "1.8"), (17, 8, "1.12"), (17, 10, "1.18"), (18, 8, "1.14"), (19, 9, "1.15"),
        (21, 10, "1.18"), (22, 10, "1.21"), (23, 11, "1.23"), (24, 12, "1.24"), (26, 13, "1.25"), (28, 14, "1.32"),
        (99, 14, "unknown"), (17, 99, "unknown"),
    ],
)  # fmt: skip
def test_first_onnxruntime_that_loads_it(tmp_path: Path, opset: int, ir_version: int, release: str) -> None:
    model = linear(opset, ir_version)
    assert read_facts(saved(model, tmp_path / "model.onnx")).min_onnxruntime == release


def test_the_installed_onnxruntime_agrees(tmp_path: Path) -> None:
    """Whatever is installed loads what the table says it loads, and nothing newer."""
    installed = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
    for opset, ir_version in [(17, 8), (21, 10), (23, 11), (25, 12), (26, 13), (28, 13), (28, 14)]:
        path = saved(linear(opset, ir_version), tmp_path / "model.onnx")
        since = tuple(map(int, read_facts(path).min_onnxruntime.split(".")))
        try:
            onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            loads = True
        except Exception:  # noqa: BLE001 - onnxruntime raises classes of its C++ side
            loads = False
        assert loads == (installed >= since), (opset, ir_version)


def test_fused_operators_need_the_release_that_has_them(tmp_path: Path) -> None:
    model = linear()
    model.graph.node[2].op_type = "GroupQueryAttention"
    assert read_facts(saved(model, tmp_path / "model.onnx")).min_onnxruntime == "1.16"


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="No such file"):
        read_facts(tmp_path / "model.onnx")
    (tmp_path / "model.onnx").write_bytes(linear().SerializeToString()[:50])
    with pytest.raises(ModelFileError, match=r"model\.onnx is not an ONNX model, or is truncated"):
        read_facts(tmp_path / "model.onnx")
