from __future__ import annotations

import onnx
import pytest
from onnx import helper

from onnxport.verify.checks import load_check
from onnxport.verify.inspection import Inspection, Unavailable


@pytest.fixture
def ask(build, save, subject_of):
    """Two com.microsoft:Gelu and one ai.onnx:MatMul, one ai.onnx:Gelu, in a graph of opset 20."""
    nodes = [
        helper.make_node("Gelu", ["states"], ["g1"], domain="com.microsoft"),
        helper.make_node("Gelu", ["g1"], ["g2"], domain="com.microsoft"),
        helper.make_node("Gelu", ["g2"], ["hidden"]),
    ]
    path = save(build(hidden=nodes, opsets={"": 20, "com.microsoft": 1}))

    def ask(**claims: dict[str, int]) -> list[tuple[str, str]]:
        with Inspection(subject_of(path, **claims)) as inspection:
            return [(r.verdict, r.detail) for r in load_check("fusion.expected")(inspection)]

    return ask


@pytest.mark.parametrize(
    ("op", "least", "verdict"),
    [
        ("Gelu", 2, "pass"),
        ("Gelu", 3, "fail"),  # the third one is ONNX's
        ("com.microsoft:Gelu", 2, "pass"),
        ("ai.onnx:Gelu", 1, "pass"),
        ("ai.onnx:Gelu", 2, "fail"),
        ("MatMul", 1, "pass"),
        ("Attention", 1, "fail"),
    ],
)
def test_required_fusions(op: str, least: int, verdict: str, ask) -> None:
    ((found, detail),) = ask(required_fusions={op: least})
    assert found == verdict
    assert f"at least {least} required" in detail


def test_a_misspelt_operator_is_told_from_a_missing_fusion(ask, build, save, subject_of) -> None:
    ((_, detail),) = ask(required_fusions={"Gellu": 1})
    assert detail.endswith("; it has 2 Gelu; did you mean 'Gelu'?")
    with Inspection(subject_of(save(build()), required_fusions={"Gelu": 1})) as inspection:
        (result,) = load_check("fusion.expected")(inspection)
    assert result.detail.endswith("at least 1 required; it has no operator of com.microsoft: nothing was fused")


def test_the_file_counts_and_not_what_was_recorded(ask) -> None:
    required, recorded = ask(required_fusions={"Attention": 12}, fusions={"com.microsoft:Attention": 12})
    assert required == ("fail", "0 nodes of com.microsoft:Attention in the file, at least 12 required; it has 2 Gelu")
    assert recorded == ("fail", "0 nodes of com.microsoft:Attention in the file, 12 recorded")


@pytest.mark.parametrize(
    ("fusions", "verdict"),
    [
        ({"com.microsoft:Gelu": 2}, "pass"),
        ({"com.microsoft:Gelu": 1}, "fail"),
        ({"com.microsoft:Gelu": 3}, "fail"),
        ({"ai.onnx:Gelu": 1}, "pass"),
        ({"ai.onnx:Gelu": 2}, "fail"),
        ({"ai.onnx:MatMul": 0}, "pass"),  # none came by fusion, one was there
    ],
)
def test_recorded_fusions(fusions: dict[str, int], verdict: str, ask) -> None:
    assert [found for found, _ in ask(fusions=fusions)] == [verdict]


def test_nothing_to_expect(ask) -> None:
    assert ask() == [("skip", "no fusion is required or recorded")]


def test_nodes_of_sub_graphs_count(build, save, subject_of) -> None:
    def branch(name: str) -> onnx.GraphProto:
        node = helper.make_node("Gelu", ["states"], [name], domain="com.microsoft")
        return helper.make_graph([node], name, [], [helper.make_empty_tensor_value_info(name)])

    nodes = [
        helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("t", onnx.TensorProto.BOOL, [], [True])),
        helper.make_node("If", ["yes"], ["hidden"], then_branch=branch("a"), else_branch=branch("b")),
    ]
    path = save(build(hidden=nodes, opsets={"": 17, "com.microsoft": 1}))
    with Inspection(subject_of(path, required_fusions={"Gelu": 2})) as inspection:
        assert [r.verdict for r in load_check("fusion.expected")(inspection)] == ["pass"]


def test_ort_files_do_not_tell(tmp_path, subject_of) -> None:
    subject = subject_of(tmp_path / "model.ort", required_fusions={"Gelu": 1})
    with Inspection(subject) as inspection, pytest.raises(Unavailable, match="holds no ONNX protos"):
        load_check("fusion.expected")(inspection)
