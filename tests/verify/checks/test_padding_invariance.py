from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from onnxport.verify import AxisRange, Case, GraphContract, TensorSpec
from onnxport.verify.checks import load_check
from onnxport.verify.relations import Inapplicable, variations

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


def cached(in_cache: int, in_prompt: int, **axes: AxisRange) -> tuple[Case, GraphContract]:
    """A decoder's inputs: ids 1, 2, ... of two rows, and a cache that holds 10, 11, ..."""
    ranges = {"batch": AxisRange(), "past": AxisRange(min=0), "new": AxisRange(), **axes}
    shapes: dict[str, tuple[str | int, ...]] = {
        "ids": ("batch", "new"),
        "mask": ("batch", "past+new"),
        "key": ("batch", 1, "past", 1),
    }
    types = {"ids": "int64", "mask": "int64", "key": "float32"}
    outputs = {"logits": ("batch", "new", 4), "present": ("batch", 1, "past+new", 1)}
    contract = GraphContract(
        inputs=tuple(TensorSpec(name=name, dtype=types[name], shape=shape) for name, shape in shapes.items()),
        outputs=tuple(TensorSpec(name=name, dtype="float32", shape=shape) for name, shape in outputs.items()),
        axes=ranges,
    )
    key = np.tile(np.arange(10, 10 + in_cache, dtype=np.float32).reshape(1, 1, in_cache, 1), (2, 1, 1, 1))
    inputs = {
        "ids": np.tile(np.arange(1, in_prompt + 1), (2, 1)),
        "mask": np.ones((2, in_cache + in_prompt), dtype=np.int64),
        "key": key,
    }
    return Case("cached", inputs, "mask"), contract


def rows(case: Case) -> dict[str, list[float]]:
    return {name: array[0].ravel().tolist() for name, array in case.inputs.items()}


class TestWithACache:
    def test_on_the_right_the_new_tokens_get_padding(self) -> None:
        (one,) = variations("padding.right", *cached(2, 3))
        assert rows(one.changed) == {
            "ids": [1, 2, 3, 0, 0, 0, 0, 0], "mask": [1] * 5 + [0] * 5, "key": [10, 11],
        }  # fmt: skip
        assert {axis: list(found) for axis, found in one.changed_picks.items()} == {
            "new": [0, 1, 2], "past+new": [0, 1, 2, 3, 4],
        }  # fmt: skip

    def test_on_the_left_the_cache_gets_it_and_without_one_the_prompt(self) -> None:
        in_cache, in_prompt = variations("padding.left", *cached(2, 3))
        assert rows(in_cache.changed) == {
            "ids": [1, 2, 3], "mask": [0] * 5 + [1] * 5, "key": [0, 0, 0, 0, 0, 10, 11],
        }  # fmt: skip
        assert {axis: list(found) for axis, found in in_cache.changed_picks.items()} == {"past+new": [5, 6, 7, 8, 9]}
        assert in_cache.what == "5 more padded positions on the left of past"
        assert rows(in_prompt.original) == {"ids": [1, 2, 3], "mask": [1, 1, 1], "key": []}
        assert rows(in_prompt.changed) == {"ids": [0] * 5 + [1, 2, 3], "mask": [0] * 5 + [1] * 3, "key": []}
        assert {axis: list(found) for axis, found in in_prompt.changed_picks.items()} == {
            "new": [5, 6, 7], "past+new": [5, 6, 7],
        }  # fmt: skip
        assert [one.what for one in variations("padding.left", *cached(0, 3))] == [in_prompt.what]

    def test_a_cache_that_may_not_be_empty_stays(self) -> None:
        (one,) = variations("padding.left", *cached(2, 3, past=AxisRange(min=1)))
        assert one.what.endswith("left of past")

    def test_other_values_stand_in_the_first_half(self) -> None:
        (one,) = variations("padding.content", *cached(1, 4))
        assert rows(one.original) == {"ids": [0, 2, 3, 4], "mask": [0, 0, 1, 1, 1], "key": [0]}
        assert rows(one.changed) == {"ids": [1, 2, 3, 4], "mask": [0, 0, 1, 1, 1], "key": [10]}

    def test_no_room(self) -> None:
        in_prompt = variations("padding.left", *cached(2, 3, past=AxisRange(min=0, max=2)))
        in_cache = variations("padding.left", *cached(2, 1, new=AxisRange(max=1)))
        assert [one.what for one in (*in_prompt, *in_cache)] == [
            "5 more padded positions on the left of new",
            "5 more padded positions on the left of past",
        ]
        with pytest.raises(Inapplicable, match="past cannot be longer than 2"):
            variations("padding.left", *cached(2, 1, past=AxisRange(max=2)))
        (one,) = variations("padding.left", *cached(0, 1, new=AxisRange(max=4)))
        assert rows(one.changed)["mask"] == [0, 0, 0, 1]

    def test_positions_that_are_always_there(self) -> None:
        """A prefix of two positions before the tokens, as soft prompts are."""
        tokens, contract = cached(0, 4)
        shapes = {"ids": ("batch", "new"), "mask": ("batch", "2+new")}
        contract = contract.model_copy(
            update={
                "inputs": tuple(TensorSpec(name=n, dtype="int64", shape=shape) for n, shape in shapes.items()),
                "outputs": (TensorSpec(name="logits", dtype="float32", shape=("batch", "new", 4)),),
            }
        )
        case = Case("prefix", {"ids": tokens.inputs["ids"], "mask": np.ones((2, 6), dtype=np.int64)}, "mask")
        (left,) = variations("padding.left", case, contract)
        assert rows(left.changed) == {"ids": [0] * 5 + [1, 2, 3, 4], "mask": [1, 1] + [0] * 5 + [1] * 4}
        (content,) = variations("padding.content", case, contract)
        assert rows(content.original) == {"ids": [0, 2, 3, 4], "mask": [0, 0, 0, 1, 1, 1]}
        assert rows(variations("rows.reordered", case, contract)[0].original)["mask"] == [1] * 6
