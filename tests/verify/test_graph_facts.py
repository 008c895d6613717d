"""Facts of ONNX files, against graphs whose facts are known because they are built here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.verify.errors import ModelFileError
from onnxport.verify.graph_facts import is_named, read_facts


def with_external_table(model: onnx.ModelProto, data_type: int, **entries: str) -> onnx.ModelProto:
    """The model with 5 elements of a type in another file as its first initializer, "table"."""
    table = TensorProto(name="table", data_type=data_type, dims=[5], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "table.bin", **entries}.items():
        table.external_data.add(key=key, value=value)
    model.graph.initializer[0].CopyFrom(table)
    return model


def test_facts_of_a_plain_file(build, save) -> None:
    facts = read_facts(save(build(opsets={"com.microsoft": 1, "ai.onnx": 17})))
    tokens = ("batch", "sequence")
    assert [(t.name, t.dtype, t.shape) for t in facts.inputs] == [
        ("input_ids", "int64", tokens),
        ("attention_mask", "int64", tokens),
    ]
    assert [(t.name, t.dtype, t.shape) for t in facts.outputs] == [
        ("hidden", "float32", (*tokens, 4)),
        ("pooled", "float32", ("batch", 4)),
    ]
    assert list(facts.opsets.items()) == [("", 17), ("com.microsoft", 1)]
    assert facts.ir_version == 8
    operators = ["Cast", "Gather", "Identity", "MatMul", "Mul", "ReduceSum", "Unsqueeze"]
    assert list(facts.ops.items()) == [(f"ai.onnx:{op}", 1) for op in operators]
    assert facts.external == ()


@pytest.mark.parametrize(
    ("data_type", "needed_bytes"),
    [
        (TensorProto.INT4, 3),
        (TensorProto.UINT2, 2),
        (TensorProto.FLOAT4E2M1, 3),
        (TensorProto.FLOAT8E4M3FN, 5),
        (TensorProto.BFLOAT16, 10),
        (TensorProto.BOOL, 5),
        (TensorProto.INT64, 40),
    ],
)
def test_external_tensors(build, save, data_type: int, needed_bytes: int) -> None:
    (tensor,) = read_facts(save(with_external_table(build(), data_type, offset="64"))).external
    assert (tensor.name, tensor.location, tensor.offset_bytes) == ("table", "table.bin", 64)
    assert (tensor.size_bytes, tensor.needed_bytes) == (needed_bytes, needed_bytes)
    (tensor,) = read_facts(save(with_external_table(build(), data_type, length="7"))).external
    assert (tensor.size_bytes, tensor.needed_bytes) == (7, needed_bytes)


def test_counts_subgraphs_and_local_functions(save) -> None:
    def branch(op: str) -> onnx.GraphProto:
        value = helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])
        weight = TensorProto(name=f"inner_{op}", data_type=TensorProto.FLOAT16, dims=[2])
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=f"{op}.bin")
        return helper.make_graph([helper.make_node(op, ["x"], ["b"])], op, [], [value], [weight])

    nodes = [
        helper.make_node("If", ["c"], ["i"], then_branch=branch("Relu"), else_branch=branch("Neg")),
        helper.make_node("Twice", ["i"], ["y"], domain="local"),
        helper.make_node("Twice", ["i"], ["z"], domain="local"),
    ]
    twice = helper.make_function(
        "local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "yz"],
    )
    imports = [helper.make_opsetid("ai.onnx", 17), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, opset_imports=imports, functions=[twice])
    facts = read_facts(save(model))
    assert facts.ops == {"ai.onnx:Add": 1, "ai.onnx:If": 1, "ai.onnx:Neg": 1, "ai.onnx:Relu": 1, "local:Twice": 2}
    assert facts.opsets == {"": 17, "local": 1}
    assert [t.shape for t in facts.inputs] == [(), (2,)]
    assert [(t.name, t.location, t.needed_bytes) for t in facts.external] == [
        ("inner_Neg", "Neg.bin", 4),
        ("inner_Relu", "Relu.bin", 4),
    ]


def test_unusual_inputs(save) -> None:
    unnamed = helper.make_tensor_value_info("unnamed", TensorProto.INT64, [None, 2])
    unranked = helper.make_tensor_value_info("unranked", TensorProto.BFLOAT16, None)
    text = helper.make_tensor_value_info("text", TensorProto.STRING, ["n"])
    sequence = helper.make_tensor_sequence_value_info("sequence", TensorProto.FLOAT, ["n"])
    weight = numpy_helper.from_array(np.ones(2, np.int64), "weight")
    listed = helper.make_tensor_value_info("weight", TensorProto.INT64, [2])
    graph = helper.make_graph(
        [helper.make_node("Add", ["unnamed", "weight"], ["y"])],
        "g",
        [unnamed, unranked, text, sequence, listed],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [None, 2])],
        [weight],
    )
    facts = read_facts(save(helper.make_model(graph)))
    assert [(t.name, t.dtype, t.shape) for t in facts.inputs] == [
        ("unnamed", "int64", ("?unnamed.0", 2)),
        ("unranked", "bfloat16", ("?unranked",)),
        ("text", "string", ("n",)),
        ("sequence", "sequence", ("?sequence",)),
    ]
    assert [dim for spec in facts.inputs for dim in spec.shape if is_named(dim)] == ["n"]


class TestRefusals:
    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\0",
            b"hello",
            b"not an onnx file, merely some text\n",
            b'{"schema_version": 1}',
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            b"PK\x03\x04\x14\0\0\0\x08\0",
            b"\x08\x08",  # a ModelProto with nothing but an IR version
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            bytes(64),
        ],
    )
    def test_no_model(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "model.onnx"
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"model\.onnx"):
            read_facts(path)

    def test_truncated_anywhere(self, tmp_path: Path, build) -> None:
        whole = build().SerializeToString()
        path = tmp_path / "model.onnx"
        for size in range(0, len(whole), 7):
            path.write_bytes(whole[:size])
            with pytest.raises(ModelFileError):
                read_facts(path)

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ModelFileError, match="No such file"):
            read_facts(tmp_path / "model.onnx")

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ModelFileError, match="cannot be read"):
            read_facts(tmp_path)

    def test_ort_format(self, tmp_path: Path, build) -> None:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "model.ort")
        options.add_session_config_entry("session.save_model_format", "ORT")
        onnxruntime.InferenceSession(build().SerializeToString(), options, providers=["CPUExecutionProvider"])
        with pytest.raises(ModelFileError, match=r"\.ort format"):
            read_facts(tmp_path / "model.ort")

    @pytest.mark.parametrize(("key", "value"), [("offset", "many"), ("length", "4 bytes")])
    def test_external_entries_that_are_no_numbers(self, build, save, key: str, value: str) -> None:
        with pytest.raises(ModelFileError, match="an entry for external data that cannot be understood"):
            read_facts(save(with_external_table(build(), TensorProto.FLOAT, **{key: value})))

    def test_external_data_of_an_unknown_type(self, build, save) -> None:
        with pytest.raises(ModelFileError, match="table has data type 99, which onnx"):
            read_facts(save(with_external_table(build(), 99)))
