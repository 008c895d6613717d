from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.verify import AxisRange
from onnxport.verify.checks import load_check
from onnxport.verify.contract import Vocabulary

REFUSED = dict.fromkeys(("missing input", "unknown name", "wrong dtype", "wrong rank"), "pass")
NO_IDS = dict.fromkeys(("id above", "id below", "id beyond 32 bits"), "skip")


def ask(probe) -> dict[str, str]:
    results = load_check("inputs.rejected")(probe)
    assert {r.id for r in results} == {"inputs.rejected"}
    assert all(r.detail.startswith(f"{r.case}: ") for r in results)
    return {str(r.case): r.verdict for r in results}


@pytest.fixture
def with_ids(contract):
    return contract.model_copy(update={"vocabularies": {"input_ids": Vocabulary(size=16)}})


def test_onnxruntime_refuses_what_does_not_fit(build, probe_of) -> None:
    assert ask(probe_of(build())) == {**REFUSED, **NO_IDS, "wrong size": "skip"}


def test_ids_outside_the_vocabulary(build, probe_of, with_ids) -> None:
    found = load_check("inputs.rejected")(probe_of(build(), contract=with_ids))
    by_case = {r.case: r for r in found}
    assert by_case["id above"].verdict == "pass"
    assert by_case["id below"].verdict == "skip"
    assert "input_ids of -1 gives what 15 gives, as ONNX's Gather counts from the end" in by_case["id below"].detail
    assert by_case["id beyond 32 bits"].verdict == "pass"


def test_a_graph_that_computes_with_the_ids_themselves(build, probe_of, with_ids) -> None:
    """Where a text ends at its largest id, -1 is another text than the last id, although both find one embedding."""
    hidden = [
        helper.make_node("Cast", ["input_ids"], ["float_ids"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["float_ids", "last"], ["wide_ids"]),
        helper.make_node("Mul", ["states", "wide_ids"], ["hidden"]),
    ]
    found = {r.case: r for r in load_check("inputs.rejected")(probe_of(build(hidden=hidden), contract=with_ids))}
    assert found["id below"].verdict == "skip"
    assert "input_ids of -1 is not refused, and the graph also computes with the ids" in found["id below"].detail


LARGEST = [  # a text ends at its largest id
    helper.make_node("ArgMax", ["input_ids"], ["end"], axis=1, keepdims=1),
    helper.make_node("Cast", ["end"], ["float_end"], to=TensorProto.FLOAT),
    helper.make_node("Unsqueeze", ["float_end", "last"], ["wide_end"]),
    helper.make_node("Add", ["states", "wide_end"], ["hidden"]),
]


def in_branch(model: onnx.ModelProto) -> onnx.ModelProto:
    """The whole graph in both branches of an If, as a merged decoder has it; the branches read the inputs outside."""
    graph = model.graph
    inner = helper.make_graph(list(graph.node), "branch", [], list(graph.output))
    always = numpy_helper.from_array(np.array(True), "always")
    names = [value.name for value in graph.output]
    del graph.node[:]
    graph.initializer.append(always)
    graph.node.append(helper.make_node("If", ["always"], names, then_branch=inner, else_branch=_renamed(inner)))
    return model


def _renamed(graph: onnx.GraphProto) -> onnx.GraphProto:
    other = onnx.GraphProto.FromString(graph.SerializeToString())
    made = {name for node in graph.node for name in node.output}
    for node in other.node:
        node.input[:] = [f"{name}.else" if name in made else name for name in node.input]
        node.output[:] = [f"{name}.else" for name in node.output]
    for value in other.output:
        value.name = f"{value.name}.else"
    return other


def as_ort(model: onnx.ModelProto, folder: Path) -> Path:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return folder / "model.ort"


@pytest.mark.parametrize("form", ["onnx", "If", "ort"])
def test_negative_ids_are_asked_for_in_every_form_of_a_graph(build, probe_of, with_ids, tmp_path, form) -> None:
    def found(model: onnx.ModelProto) -> dict[str, tuple[str, str]]:
        if form == "If":
            model = in_branch(model)
        probe = probe_of(as_ort(model, tmp_path) if form == "ort" else model, contract=with_ids)
        return {str(r.case): (r.verdict, r.detail) for r in load_check("inputs.rejected")(probe)}

    plain = found(build())
    assert plain["id above"][0] == "pass"
    assert plain["id below"][0] == "skip"
    assert "-1 gives what 15 gives" in plain["id below"][1]
    besides = found(build(hidden=LARGEST))
    assert besides["id above"][0] == "pass"
    assert besides["id below"][0] == "skip"
    assert "-1 is looked up from the end of the table, as -15 is, which gives what 1 gives" in besides["id below"][1]
    times = [
        helper.make_node("Cast", ["input_ids"], ["float_ids"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["float_ids", "last"], ["wide_ids"]),
        helper.make_node("Mul", ["states", "wide_ids"], ["hidden"]),
    ]
    verdict, detail = found(build(hidden=times))["id below"]
    assert verdict == "skip"
    assert ("does not show" if form == "ort" else "also computes with the ids") in detail


def test_the_last_id_and_one_in_every_form_of_a_graph(build, probe_of, with_ids, tmp_path) -> None:
    for make in (lambda model: model, in_branch, lambda model: as_ort(model, tmp_path)):
        short = with_ids.model_copy(update={"vocabularies": {"input_ids": Vocabulary(size=12)}})
        assert ask(probe_of(make(build()), contract=short))["id above"] == "fail"


def test_a_graph_that_clips_is_seen_in_every_form(build, probe_of, with_ids, tmp_path) -> None:
    for make in (in_branch, lambda model: as_ort(model, tmp_path)):
        model = build(initializers=[numpy_helper.from_array(np.array(v), n) for n, v in (("low", 0), ("high", 15))])
        model.graph.node[0].input[1] = "clipped"
        model.graph.node.insert(0, helper.make_node("Clip", ["input_ids", "low", "high"], ["clipped"]))
        found = ask(probe_of(make(model), contract=with_ids))
        assert (found["id above"], found["id below"]) == ("fail", "fail")


def test_a_graph_that_keeps_32_bits_of_an_id(build, probe_of, with_ids) -> None:
    model = build()
    gather = model.graph.node[0]
    gather.input[1] = "short"
    model.graph.node.insert(0, helper.make_node("Cast", ["input_ids"], ["short"], to=TensorProto.INT32))
    assert ask(probe_of(model, contract=with_ids))["id beyond 32 bits"] == "skip"


def test_a_graph_that_clips_ids_into_its_table(build, probe_of, with_ids) -> None:
    model = build(initializers=[numpy_helper.from_array(np.array(v), n) for n, v in (("low", 0), ("high", 15))])
    model.graph.node[0].input[1] = "clipped"
    model.graph.node.insert(0, helper.make_node("Clip", ["input_ids", "low", "high"], ["clipped"]))
    found = ask(probe_of(model, contract=with_ids))
    assert (found["id above"], found["id below"]) == ("fail", "fail")


def test_a_table_longer_than_the_vocabulary(build, probe_of, contract) -> None:
    short = contract.model_copy(update={"vocabularies": {"input_ids": Vocabulary(size=12)}})
    found = ask(probe_of(build(), contract=short))
    assert (found["id above"], found["id below"]) == ("fail", "fail")


def test_an_input_with_a_default(build, probe_of) -> None:
    mask = numpy_helper.from_array(np.ones((2, 3), np.int64), "attention_mask")
    assert ask(probe_of(build(initializers=[mask])))["missing input"] == "fail"


def test_an_input_of_any_rank(build, probe_of, cases) -> None:
    model = build(inputs=("input_ids", "attention_mask"))
    model.graph.input[0].type.tensor_type.ClearField("shape")
    del model.graph.output[1], model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    assert ask(probe_of(model))["wrong rank"] == "fail"


def test_an_input_of_another_dtype(build, probe_of, contract, cases) -> None:
    model = build()
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    assert ask(probe_of(model))["wrong dtype"] == "fail"


def test_a_size_that_was_promised_to_be_fixed(build, probe_of, contract) -> None:
    fixed = contract.model_copy(update={"axes": {"batch": AxisRange(min=2, max=2), "sequence": AxisRange()}})
    assert ask(probe_of(build(axes=(2, "sequence")), contract=fixed))["wrong size"] == "pass"
    assert ask(probe_of(build(), contract=fixed))["wrong size"] == "fail"
