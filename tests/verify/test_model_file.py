"""Reading a model without its weights gives what onnx reads, but for the weights."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.verify.errors import ModelFileError
from onnxport.verify.model_file import read_model


def model_with(weight: onnx.TensorProto) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("MatMul", ["x", "weight"], ["z"]), helper.make_node("Add", ["z", "bias"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, ["n", weight.dims[0]])],
        [value("y", TensorProto.FLOAT, ["n", weight.dims[1]])],
        [weight, numpy_helper.from_array(np.ones(weight.dims[1], np.float32), "bias")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="test")


def test_all_but_the_data_of_large_initializers_is_there(tmp_path: Path) -> None:
    model = model_with(numpy_helper.from_array(np.random.rand(64, 32).astype(np.float32), "weight"))
    onnx.save(model, tmp_path / "m.onnx")
    read = read_model(tmp_path / "m.onnx")
    data = read.skipped["weight"]
    assert (tmp_path / "m.onnx").read_bytes()[data.offset_bytes :][: data.size_bytes] == (
        model.graph.initializer[0].raw_data
    )
    assert list(read.skipped) == ["weight"]
    assert not read.proto.graph.initializer[0].raw_data
    model.graph.initializer[0].ClearField("raw_data")
    assert read.proto == model


def test_a_model_in_several_pieces_is_merged_as_protobuf_does(tmp_path: Path) -> None:
    model = model_with(numpy_helper.from_array(np.random.rand(64, 32).astype(np.float32), "weight"))
    graph = onnx.ModelProto(graph=onnx.GraphProto(initializer=[numpy_helper.from_array(np.ones(600), "more")]))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString() + graph.SerializeToString())
    read = read_model(tmp_path / "m.onnx")
    assert {name: data.size_bytes for name, data in read.skipped.items()} == {"weight": 64 * 32 * 4, "more": 4800}
    assert [tensor.name for tensor in read.proto.graph.initializer] == ["weight", "bias", "more"]


def test_memory_does_not_grow_with_the_weights(tmp_path: Path) -> None:
    onnx.save(model_with(numpy_helper.from_array(np.zeros((2048, 1024), np.float32), "weight")), tmp_path / "m.onnx")
    tracemalloc.start()
    read_model(tmp_path / "m.onnx")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000, "the weights are 8 MiB"


@pytest.fixture
def small(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / "m.onnx"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize(
    "content",
    [
        b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",  # a length without an end
        b"\x3a\x10abc",  # a graph longer than the file
        b"\x0f",  # a wire type that does not exist
        b"\x3a\x03\x2a\x05a",  # an initializer longer than its graph
        b"\x3d\x00",  # four bytes announced, one there
        b"\x08",
    ],
)
def test_malformed(small: Callable[[bytes], Path], content: bytes) -> None:
    with pytest.raises(ModelFileError, match="not an ONNX model, or is truncated"):
        read_model(small(content))
