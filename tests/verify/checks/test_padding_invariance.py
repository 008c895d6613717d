from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

from onnxport.verify import AxisRange, Case
from onnxport.verify.checks import load_check

LAST_AXIS = numpy_helper.from_array(np.array([1]), "axis")


def ask(probe) -> dict[str, str]:
    results = load_check("padding.invariant")(probe)
    assert {r.id for r in results} == {"padding.invariant"}
    return {r.detail.partition(":")[0].removeprefix("padding."): r.verdict for r in results}


def test_a_graph_that_keeps_to_the_mask(build, probe_of) -> None:
    assert ask(probe_of(build())) == {"right": "pass", "left": "pass", "content": "pass"}


def test_a_graph_that_ignores_the_mask(build, probe_of) -> None:
    mean = [
        helper.make_node("ReduceMean", ["states"], ["mean"], axes=[1]),
        helper.make_node("Add", ["states", "mean"], ["hidden"]),
    ]
    assert ask(probe_of(build(hidden=mean))) == {"right": "fail", "left": "fail", "content": "fail"}


def test_a_graph_that_counts_positions(build, probe_of) -> None:
    """As absolute positions do: padding on the left moves the text."""
    position = [
        helper.make_node("CumSum", ["ones", "axis"], ["positions"]),
        helper.make_node("Add", ["states", "positions"], ["hidden"]),
    ]
    ones = [
        helper.make_node("Sub", ["weight_mask", "weight_mask"], ["zeros"]),
        helper.make_node("Exp", ["zeros"], ["ones"]),
    ]
    model = build(hidden=[*ones, *position], initializers=[numpy_helper.from_array(np.array(1), "axis")])
    assert ask(probe_of(model)) == {"right": "pass", "left": "fail", "content": "pass"}


def test_a_case_with_padding_already(build, probe_of, cases) -> None:
    left = {**cases[1].inputs, "attention_mask": cases[1].inputs["attention_mask"][:, ::-1]}
    assert ask(probe_of(build(), cases=[Case("left", left, "attention_mask")])) == {
        "right": "pass", "left": "pass", "content": "skip",
    }  # fmt: skip


def test_no_mask_and_no_room(build, probe_of, contract, cases) -> None:
    unmasked = [Case(case.name, case.inputs) for case in cases]
    assert set(ask(probe_of(build(), cases=unmasked)).values()) == {"skip"}
    fixed = contract.model_copy(update={"axes": {"batch": AxisRange(), "sequence": AxisRange(min=3, max=3)}})
    found = ask(probe_of(build(axes=("batch", 3)), contract=fixed, cases=cases[:1]))
    assert found == {"right": "skip", "left": "skip", "content": "pass"}
