from __future__ import annotations

from onnx import helper

from onnxport.verify.checks import load_check


def ask(probe):
    results = load_check("iobinding.match")(probe)
    assert {r.id for r in results} == {"iobinding.match"}
    return results


def test_bound_inputs_and_outputs(build, probe_of) -> None:
    allocated, preallocated = ask(probe_of(build()))
    assert (allocated.verdict, preallocated.verdict) == ("pass", "pass")
    assert allocated.detail.startswith("allocated outputs, bit for bit: 4 outputs agree")
    assert preallocated.detail.startswith("preallocated outputs, bit for bit: 4 outputs agree")
    assert allocated.compared == 80  # padded positions too


def test_a_graph_that_answers_differently_each_time(build, probe_of) -> None:
    noise = [
        helper.make_node("RandomNormalLike", ["states"], ["noise"]),
        helper.make_node("Add", ["states", "noise"], ["hidden"]),
    ]
    for result in ask(probe_of(build(hidden=noise))):
        assert result.verdict == "fail"
        assert "not bit for bit: 2 of 4 outputs differ; worst: " in result.detail


def test_a_graph_that_does_not_run(build, probe_of) -> None:
    first, second = ask(probe_of(build(axes=("batch", 7))))
    assert (first.verdict, second.verdict) == ("fail", "fail")
    assert "Expected: 7" in first.detail
