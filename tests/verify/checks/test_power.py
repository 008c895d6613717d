from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.verify import AxisRange, Case, GraphContract, OrtRunner, Recorded, TensorSpec, Tolerance
from onnxport.verify.checks import load_check
from onnxport.verify.perturbed_weight import copy_with_perturbed_weight

SEEN = {"power.mask": "pass", "power.swapped": "pass", "power.weights": "pass"}


def ask(probe) -> dict[str, tuple[str, str]]:
    results = load_check("outputs.sensitive/power")(probe)
    assert {r.id for r in results} <= {"outputs.sensitive"}
    return {r.case: (r.verdict, r.detail) for r in results}


def verdicts(probe) -> dict[str, str]:
    return {name: verdict for name, (verdict, _) in ask(probe).items()}


def test_every_fault_is_seen(build, probe_of) -> None:
    found = ask(probe_of(build()))
    assert {name: verdict for name, (verdict, _) in found.items()} == SEEN
    assert found["power.mask"][1].startswith("attention_mask all ones: seen in padded, pooled: ")
    assert found["power.weights"][1].startswith("table multiplied by 1.05 and 0.95 in turn: seen in plain, hidden: ")


def test_a_graph_that_ignores_its_mask(build, save, probe_of, cases) -> None:
    """It agrees with a reference that ignores it too, and the comparison at real tokens cannot know."""
    model = build(outputs=("hidden",))
    with OrtRunner(save(model, "blind.onnx")) as runner:
        blind = Recorded("blind", {case.name: runner.run(case) for case in cases})
    contract = GraphContract(
        inputs=tuple(TensorSpec(name=n, dtype="int64", shape=("b", "s")) for n in ("input_ids", "attention_mask")),
        outputs=(TensorSpec(name="hidden", dtype="float32", shape=("b", "s", 4)),),
        axes={"b": AxisRange(), "s": AxisRange()},
    )
    found = ask(probe_of(model, reference=blind, contract=contract))
    assert found["power.mask"][0] == "fail"
    assert "attention_mask all ones: not seen in any case" in found["power.mask"][1]


def test_a_criterion_that_a_wrong_weight_meets(build, probe_of) -> None:
    assert verdicts(probe_of(build(), criterion=Tolerance(rtol=0.2, atol=0.2)))["power.weights"] == "fail"
    assert set(verdicts(probe_of(build(), criterion=Tolerance(rtol=100, atol=100))).values()) == {"fail"}


def test_a_graph_that_is_wrong_already_proves_nothing(build, probe_of) -> None:
    assert set(verdicts(probe_of(build(perturb=0.5))).values()) == {"skip"}


def test_other_variants_are_not_asked(build, probe_of) -> None:
    assert ask(probe_of(build(), plants_faults=False)) == {}


def test_without_padding(build, probe_of, cases) -> None:
    found = ask(probe_of(build(), cases=cases[:1]))
    assert found["power.mask"] == ("skip", "no case on which the graph agrees has padding")
    assert found["power.weights"][0] == "pass"


@pytest.mark.parametrize(
    ("op", "inputs", "verdict", "told"),
    [
        ("Add", "ab", "skip", "the graph is symmetric in a and b"),
        ("Sub", "ab", "pass", "a and b exchanged: seen in one, y"),
        ("Sub", "aa", "fail", "a and b exchanged: not seen in any of 1 cases"),
    ],
)
def test_inputs_that_may_be_exchanged(op: str, inputs: str, verdict: str, told: str, build, save, probe_of) -> None:
    a, b, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "aby")
    graph = helper.make_graph([helper.make_node(op, list(inputs), ["y"])], "g", [a, b], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    case = Case("one", {n: np.random.default_rng(ord(n)).normal(size=(4, 3)).astype(np.float32) for n in "ab"})
    with OrtRunner(save(model, "reference.onnx")) as runner:
        reference = Recorded("reference", {"one": runner.run(case)})
    specs = [TensorSpec(name=name, dtype="float32", shape=("n", 3)) for name in "aby"]
    contract = GraphContract(inputs=tuple(specs[:2]), outputs=tuple(specs[2:]), axes={"n": AxisRange()})
    found = ask(probe_of(model, contract=contract, cases=[case], reference=reference))
    assert found["power.swapped"][0] == verdict
    assert told in found["power.swapped"][1]
    assert (found["power.weights"][0], found["power.mask"][0]) == ("skip", "skip")


@pytest.mark.parametrize("where", ["inline", "in the file", "external", "one by one"])
def test_the_weight_alone_is_changed_wherever_it_lies(where: str, tmp_path: Path) -> None:
    size = 4 if where in ("inline", "one by one") else 33
    weight = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    other = np.ones((2, size), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Gemm", ["v", "h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, size])],
        [
            helper.make_tensor("w", TensorProto.FLOAT, weight.shape, weight.ravel().tolist())
            if where == "one by one"
            else numpy_helper.from_array(weight, "w"),
            numpy_helper.from_array(other, "v"),
            numpy_helper.from_array(np.zeros((99, 99), np.float32), "unused"),
        ],
    )
    path = tmp_path / "a" / "m.onnx"
    path.parent.mkdir()
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]),
        path,
        save_as_external_data=where == "external",
        location="m.onnx_data",
        size_threshold=0,
    )
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    (tmp_path / "b").mkdir()
    copied = copy_with_perturbed_weight(path, tmp_path / "b")
    assert copied == (tmp_path / "b" / "m.onnx", "w")
    found = {t.name: numpy_helper.to_array(t) for t in onnx.load(copied[0]).graph.initializer}
    factors = np.resize(np.array([1.05, 0.95], np.float32), weight.shape)
    np.testing.assert_array_equal(found["w"], weight * factors)
    np.testing.assert_array_equal(found["v"], other)
    assert not found["unused"].any()
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
