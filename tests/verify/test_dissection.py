"""Graphs taken apart: values looked at, replaced and cut free compute what they should, wherever their weights are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.verify.dissection import Dissection, run_model
from onnxport.verify.errors import ModelFileError, SessionError

WEIGHT = np.random.default_rng(0).normal(0, 1, (32, 32)).astype(np.float32)
X = np.random.default_rng(1).normal(0, 1, (3, 32)).astype(np.float32)


def branch(name: str) -> onnx.GraphProto:
    """Reads `h` of the outer graph."""
    node = helper.make_node("Mul", ["h", "two"], [name])
    constant = helper.make_node("Constant", [], ["two"], value_float=2.0)
    return helper.make_graph([constant, node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])


@pytest.fixture(params=["single", "external"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """x -> h = x @ w -> r = relu(h); y = r + (2 h), the sum's right side from an If."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("If", ["flag"], ["twice"], then_branch=branch("a"), else_branch=branch("b")),
        helper.make_node("Shape", ["r"], ["shape"]),
        helper.make_node("Add", ["r", "twice"], ["sum"]),
        helper.make_node("Reshape", ["sum", "shape"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 32])],
        [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(np.array(True), "flag")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    target = tmp_path / "model.onnx"
    onnx.save(model, target, save_as_external_data=request.param == "external", location="data.bin", size_threshold=0)
    return target


def test_any_value_can_be_looked_at(path: Path) -> None:
    found = dict(Dissection(path).run(["h", "twice", "y"], {"x": X}))
    assert list(found) == ["h", "twice", "y"]
    np.testing.assert_allclose(found["h"], X @ WEIGHT, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["y"], np.maximum(found["h"], 0) + 2 * found["h"], rtol=1e-5)


def test_a_known_value_is_read_everywhere_and_still_computed(path: Path) -> None:
    known = {"h": np.full((3, 32), -1.0, np.float32)}
    found = dict(Dissection(path).run(["h", "r", "y"], {"x": X}, known))
    np.testing.assert_allclose(found["h"], X @ WEIGHT, rtol=1e-4, atol=1e-5)
    assert not found["r"].any()
    np.testing.assert_array_equal(found["y"], np.full((3, 32), -2.0))  # the sub-graph reads it too


def test_a_segment_ends_at_known_values_and_inputs(path: Path) -> None:
    graph = Dissection(path)
    assert graph.segment("y", {}).inputs == ("x",)
    segment = graph.segment("y", {"h", "y"})
    assert segment.inputs == ("h",)
    assert [node.op_type for node in segment.nodes] == ["Relu", "If", "Shape", "Add", "Reshape"]
    assert graph.segment("sum", {"h", "r"}).inputs == ("h", "r")
    shapeless = graph.segment("shape", {}, shapes=False)
    assert [node.op_type for node in shapeless.nodes] == ["Shape"]


def test_a_cut_is_a_whole_model_with_its_own_weights(path: Path, tmp_path: Path) -> None:
    graph = Dissection(path)
    model = graph.cut(graph.segment("h", {}), {"x": X})
    onnx.save(model, tmp_path / "cut.onnx")
    for file in (path, path.with_name("data.bin")):
        file.unlink(missing_ok=True)
    cut = onnx.load(tmp_path / "cut.onnx")
    assert [tensor.name for tensor in cut.graph.initializer] == ["w"]
    np.testing.assert_allclose(run_model(cut, {"x": X[:2]})[0], X[:2] @ WEIGHT, rtol=1e-4, atol=1e-5)


def test_the_file_stays_as_it_is(path: Path) -> None:
    before = path.read_bytes()
    graph = Dissection(path)
    list(graph.run(["r"], {"x": X}, {"h": X}))
    assert path.read_bytes() == before
    assert graph.outputs == ("y",)
    assert [node.input[0] for node in graph.nodes][:2] == ["x", "h"]


def test_what_cannot_be_run_is_an_error(path: Path, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="does not load"):
        list(Dissection(path).run(["nowhere"], {"x": X}))
    with pytest.raises(SessionError, match="failed on these inputs"):
        list(Dissection(path).run(["y"], {"x": X[:, :5]}))
    with pytest.raises(ModelFileError):
        Dissection(tmp_path / "missing.onnx")
