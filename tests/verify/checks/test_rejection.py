from __future__ import annotations

import numpy as np
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
    assert "input_ids of -1 is looked up from the end of the table" in found["id below"].detail


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
