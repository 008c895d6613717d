"""The passes around fusion, one by one, on graphs written by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.exporters.variants.attention_mask import compares_positions
from onnxport.exporters.variants.folding import MAX_ELEMENTS, fold_constants
from onnxport.exporters.variants.operators import fused_since, import_used_domains, operator_counts
from onnxport.exporters.variants.tied_weights import (
    multiply_by_copies,
    multiply_by_tied_weights_in_place,
    share_equal_weights,
)

RNG = np.random.default_rng(0)


def model(
    nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], initializers: dict[str, np.ndarray] | None = None
) -> onnx.ModelProto:
    """A graph of one input `x`: float32 [n, 8]."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in (initializers or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(proto: onnx.ModelProto) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = np.arange(24, dtype=np.float32).reshape(3, 8) / 24
    result: list[np.ndarray] = session.run(None, {"x": x})
    return result


def constant(name: str, value: np.ndarray) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))


def ops(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


def test_folding_computes_what_depends_on_no_input() -> None:
    proto = model(
        [
            constant("one", np.array(1)),
            helper.make_node("Unsqueeze", ["one", "axes"], ["starts"]),
            helper.make_node("Add", ["starts", "starts"], ["ends"]),
            helper.make_node("Slice", ["x", "starts", "ends"], ["y"]),
        ],
        ["y"],
        {"axes": np.array([0])},
    )
    expected = run(proto)
    assert fold_constants(proto) == 2
    assert ops(proto) == ["Constant", "Slice"]
    np.testing.assert_array_equal(run(proto)[0], expected[0])
    assert fold_constants(proto) == 0


def test_folding_leaves_what_is_large_random_external_or_an_output() -> None:
    proto = model(
        [
            helper.make_node("ConstantOfShape", ["large"], ["zeros"]),
            helper.make_node("RandomNormalLike", ["few"], ["noise"]),
            helper.make_node("Neg", ["few"], ["output"]),
            helper.make_node("Neg", ["external"], ["negative"]),
        ],
        ["zeros", "noise", "output", "negative"],
        {"large": np.array([MAX_ELEMENTS + 1]), "few": np.ones(3, np.float32), "external": np.ones(4, np.float32)},
    )
    proto.graph.initializer[2].data_location = TensorProto.EXTERNAL
    before = ops(proto)
    assert fold_constants(proto) == 0
    assert sorted(ops(proto)) == sorted(before)


def test_folding_keeps_what_a_sub_graph_reads() -> None:
    branch = helper.make_graph(
        [helper.make_node("Add", ["folded", "folded"], ["inner"])], "b", [], [onnx.ValueInfoProto(name="inner")]
    )
    proto = model(
        [
            helper.make_node("Neg", ["few"], ["folded"]),
            helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
            helper.make_node("Greater", ["top", "zero"], ["positive"]),
            helper.make_node("If", ["positive"], ["y"], then_branch=branch, else_branch=branch),
        ],
        ["y"],
        {"few": np.ones(3, np.float32), "zero": np.array(0, np.float32)},
    )
    expected = run(proto)
    assert fold_constants(proto) == 1
    np.testing.assert_array_equal(run(proto)[0], expected[0])


W = RNG.normal(size=(50, 8)).astype(np.float32)


def tied(*, shared: bool = True, perm: tuple[int, ...] = (1, 0)) -> onnx.ModelProto:
    return model(
        [
            helper.make_node("Transpose", ["W"], ["Wt"], perm=perm),
            helper.make_node("MatMul", ["x", "Wt"], ["y"]),
            helper.make_node("Gather", ["W" if shared else "V", "ids"], ["z"]),
        ],
        ["y", "z"],
        {"W": W, "V": W, "ids": np.array([1, 2])},
    )


def test_a_shared_weight_is_multiplied_in_place_with_the_same_numbers() -> None:
    proto = tied()
    expected = run(proto)
    assert multiply_by_tied_weights_in_place(proto) == 1
    assert ops(proto) == ["FusedMatMul", "Gather"]
    import_used_domains(proto)
    for actual, wanted in zip(run(proto), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-6, atol=1e-6)

    assert multiply_by_copies(proto) == 1
    assert ops(proto) == ["MatMul", "Gather"]
    np.testing.assert_allclose(run(proto)[0], expected[0], rtol=1e-6, atol=1e-6)


def test_a_weight_of_one_use_is_left_to_be_folded() -> None:
    assert multiply_by_tied_weights_in_place(tied(shared=False)) == 0


def test_a_transposed_weight_that_is_also_an_output_is_left() -> None:
    proto = tied()
    proto.graph.output.append(onnx.ValueInfoProto(name="Wt"))
    assert multiply_by_tied_weights_in_place(proto) == 0


def test_a_transpose_that_swaps_nothing_is_left() -> None:
    assert multiply_by_tied_weights_in_place(tied(perm=(0, 1))) == 0


def test_equal_weights_are_kept_once_and_different_ones_are_not() -> None:
    square = RNG.normal(size=(8, 64)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", name], [f"y{name}"]) for name in "abc"]
    proto = model(nodes, ["ya", "yb", "yc"], {"a": square, "b": square.copy(), "c": square + 1})
    expected = run(proto)
    assert share_equal_weights(proto) == 1
    assert [t.name for t in proto.graph.initializer] == ["a", "c"]
    for actual, wanted in zip(run(proto), expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)


def masked(*nodes: onnx.NodeProto, **initializers: np.ndarray) -> onnx.ModelProto:
    """Softmax(Where(mask, x, -1e4)) with `mask` from `nodes` or initializers; `range` counts the columns of x."""
    head = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["columns"]),
        helper.make_node("Range", ["zero", "columns", "one"], ["range"]),
        helper.make_node("Unsqueeze", ["range", "axis"], ["row"]),
    ]
    tail = [helper.make_node("Where", ["mask", "x", "low"], ["m"]), helper.make_node("Softmax", ["m"], ["y"])]
    values = {"one": np.array(1), "zero": np.array(0), "axis": np.array([0]), "low": np.array(-1e4, np.float32)}
    return model([*head, *nodes, *tail], ["y"], {**values, **initializers})


@pytest.mark.parametrize(
    ("proto", "positional"),
    [
        (masked(helper.make_node("Cast", ["x"], ["mask"], to=TensorProto.BOOL)), False),
        (masked(helper.make_node("GreaterOrEqual", ["row", "zero"], ["mask"])), False),
        (masked(mask=np.ones((1, 8), bool)), False),
        (masked(mask=np.tril(np.ones((8, 8), bool))), True),
        (
            masked(
                helper.make_node("Unsqueeze", ["range", "one_axis"], ["column"]),
                helper.make_node("LessOrEqual", ["row", "column"], ["mask"]),
                one_axis=np.array([1]),
            ),
            True,
        ),
        (
            masked(
                helper.make_node("Unsqueeze", ["range", "one_axis"], ["column"]),
                helper.make_node("Sub", ["row", "column"], ["difference"]),
                helper.make_node("Abs", ["difference"], ["distance"]),
                helper.make_node("LessOrEqual", ["distance", "one"], ["mask"]),
                one_axis=np.array([1]),
            ),
            True,
        ),
        (
            masked(
                helper.make_node("Trilu", ["ones"], ["lower"], upper=0),
                helper.make_node("Cast", ["lower"], ["mask"], to=TensorProto.BOOL),
                ones=np.ones((8, 8), np.float32),
            ),
            True,
        ),
    ],
    ids=["padding", "all-positions", "row", "causal-buffer", "causal-compare", "window", "trilu"],
)
def test_a_mask_that_relates_positions_is_told_from_padding(proto: onnx.ModelProto, positional: bool) -> None:
    assert compares_positions(proto) is positional


def test_fusions_are_what_the_later_graph_has_more_of() -> None:
    before = {"ai.onnx:MatMul": 4, "com.microsoft:Attention": 1, "ai.onnx:LayerNormalization": 2}
    after = {
        "ai.onnx:MatMul": 5,
        "com.microsoft:Attention": 3,
        "com.microsoft:FusedMatMul": 1,
        "ai.onnx:LayerNormalization": 2,
        "com.microsoft.nchwc:Conv": 1,
    }
    assert fused_since(before, after) == {
        "com.microsoft:Attention": 2,
        "com.microsoft:FusedMatMul": 1,
        "com.microsoft.nchwc:Conv": 1,
    }


def test_operators_of_sub_graphs_are_counted_and_their_domains_imported() -> None:
    branch = helper.make_graph(
        [helper.make_node("Gelu", ["x"], ["inner"], domain="com.microsoft")],
        "b",
        [],
        [onnx.ValueInfoProto(name="inner")],
    )
    proto = model([helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], ["y"])
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    assert operator_counts(proto) == {"ai.onnx:If": 1, "com.microsoft:Gelu": 2}
    import_used_domains(proto)
    assert {o.domain: o.version for o in proto.opset_import} == {"": 17, "com.microsoft": 1}
