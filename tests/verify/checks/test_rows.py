from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from onnxport.verify import AxisRange, Case, GraphContract, TensorSpec, Tolerance
from onnxport.verify.checks import load_check
from onnxport.verify.errors import SessionError, VerificationError
from onnxport.verify.relations import Inapplicable, Invariant, batch_axis, measure_relations

FIRST = numpy_helper.from_array(np.array([0]), "start")
ONE = numpy_helper.from_array(np.array([1]), "end")


def ask(probe) -> list[tuple[str, str]]:
    results = load_check("rows.independent")(probe)
    assert {r.id for r in results} == {"rows.independent"}
    return [(r.verdict, r.detail) for r in results]


def verdicts(probe) -> list[str]:
    return [verdict for verdict, _ in ask(probe)]


def test_rows_that_see_only_themselves(build, probe_of) -> None:
    (alone, _), (reordered, _) = ask(probe_of(build()))
    assert (alone, reordered) == ("pass", "pass")


def test_a_graph_that_mixes_the_batch(build, probe_of) -> None:
    mean = [
        helper.make_node("ReduceMean", ["states"], ["mean"], axes=[0]),
        helper.make_node("Sub", ["states", "mean"], ["hidden"]),
    ]
    (alone, detail), (reordered, _) = ask(probe_of(build(hidden=mean)))
    assert alone == "fail"
    assert "row 0 alone, hidden" in detail or "row 1 alone, hidden" in detail
    assert reordered == "pass"  # a mean does not depend on the order


def test_a_graph_that_depends_on_the_order(build, probe_of) -> None:
    first = [
        helper.make_node("Slice", ["states", "start", "end", "start"], ["leading"]),
        helper.make_node("Add", ["states", "leading"], ["hidden"]),
    ]
    assert verdicts(probe_of(build(hidden=first, initializers=[FIRST, ONE]))) == ["fail", "fail"]


def test_a_graph_with_a_baked_batch(build, probe_of) -> None:
    baked = [helper.make_node("Reshape", ["states", "shape"], ["hidden"])]
    shape = numpy_helper.from_array(np.array([2, -1, 4]), "shape")
    alone, reordered = ask(probe_of(build(hidden=baked, initializers=[shape])))
    assert alone[0] == "fail"
    assert reordered[0] == "pass"


def test_what_the_reference_does_not_keep_is_skipped_with_the_reason(build, probe_of) -> None:
    known = {"rows.alone": Invariant(held=False, detail="off by 9"), "rows.reordered": Invariant(held=True)}
    (alone, detail), (reordered, _) = ask(probe_of(build(), invariants=known))
    assert (alone, reordered) == ("skip", "pass")
    assert detail == "rows.alone: the reference itself does not keep it (off by 9)"
    assert verdicts(probe_of(build(), invariants=None)) == ["skip", "skip"]
    assert verdicts(probe_of(build(), invariants={})) == ["skip", "skip"]


def test_a_single_row_and_a_fixed_batch(build, probe_of, contract, cases) -> None:
    single = Case("one", {name: array[:1] for name, array in cases[0].inputs.items()}, cases[0].mask)
    assert ask(probe_of(build(), cases=[single]))[0] == ("skip", "rows.alone: the case one has a single row")
    fixed = contract.model_copy(update={"axes": {"batch": AxisRange(min=2, max=2), "sequence": AxisRange()}})
    (alone, detail), (reordered, _) = ask(probe_of(build(axes=(2, "sequence")), contract=fixed))
    assert (alone, reordered) == ("skip", "pass")
    assert detail == "rows.alone: the axis batch is fixed at 2: no row can be alone"


def test_a_case_whose_rows_are_padded_on_the_left(build, probe_of, cases) -> None:
    left = {**cases[1].inputs, "attention_mask": cases[1].inputs["attention_mask"][:, ::-1]}
    assert verdicts(probe_of(build(), cases=[Case("left", left, "attention_mask")])) == ["pass", "pass"]


def test_the_batch_must_be_told() -> None:
    def contract(*shapes: tuple[str | int, ...]) -> GraphContract:
        *inputs, output = (TensorSpec(name=f"t{i}", dtype="float32", shape=s) for i, s in enumerate(shapes))
        return GraphContract(inputs=tuple(inputs), outputs=(output,))

    assert batch_axis(contract(("batch", "sequence"), ("batch", 4))) == "batch"
    assert batch_axis(contract(("sequence", "batch"), ("batch", 4))) == "batch"
    assert batch_axis(contract(("rows", 3), ("rows",))) == "rows"
    assert batch_axis(contract((1,), ("batch", "sequence"), ("batch", 4))) == "batch", "a switch is one for all rows"
    with pytest.raises(Inapplicable, match="no axis is the batch"):
        batch_axis(contract(("batch", "sequence"), (4,)))
    for bag in [(("tokens",), ("bags",), ("bags", 4)), (("length", "rows"), ("rows", "length"))]:
        with pytest.raises(Inapplicable, match="no axis is the batch"):
            batch_axis(contract(*bag))


def test_measuring_tells_what_a_model_keeps(build, probe_of, contract, cases) -> None:
    first = [
        helper.make_node("Slice", ["states", "start", "end", "start"], ["leading"]),
        helper.make_node("Add", ["states", "leading"], ["hidden"]),
    ]
    mixing = probe_of(build(hidden=first, initializers=[FIRST, ONE]))
    measured = measure_relations(mixing.runner, cases[0], contract, mixing.subject.criterion)
    assert {name: one.held for name, one in measured.items()} == {
        "rows.alone": False, "rows.reordered": False, "padding.right": True, "padding.left": True,
        "padding.content": True,
    }  # fmt: skip
    assert measured["rows.alone"].detail.startswith("off by ")


def test_an_output_of_another_rank_or_with_too_few_rows_fails(build, probe_of) -> None:
    flat = [helper.make_node("Reshape", ["states", "shape"], ["hidden"])]
    rank = probe_of(build(hidden=flat, initializers=[numpy_helper.from_array(np.array([-1, 4]), "shape")]))
    assert [(verdict, "hidden is [" in detail) for verdict, detail in ask(rank)] == [("fail", True)] * 2
    first = [helper.make_node("Slice", ["states", "start", "end", "start"], ["hidden"])]
    short = probe_of(build(hidden=first, initializers=[FIRST, ONE]))
    (alone, _), (reordered, detail) = ask(short)
    assert (alone, reordered) == ("fail", "fail")
    assert "with at least [2, 0, 0] positions" in detail


@pytest.mark.parametrize("error", [SessionError("it does not run"), VerificationError("no such case")])
def test_a_reference_that_fails_does_not_keep_the_relation(contract, cases, error) -> None:
    measured = measure_relations(Raising(error), cases[0], contract, Tolerance(rtol=0, atol=0))
    assert {(one.held, one.detail) for one in measured.values()} == {(False, str(error))}


def test_a_fault_of_the_program_is_no_answer_of_the_reference(contract, cases) -> None:
    for error in (KeyError("a slip"), TypeError("a slip")):
        with pytest.raises(type(error), match="a slip"):
            measure_relations(Raising(error), cases[0], contract, Tolerance(rtol=0, atol=0))


class Raising:
    """A runner that fails on every case."""

    name = "raising"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def run(self, case: Case) -> dict[str, np.ndarray]:
        raise self.error
