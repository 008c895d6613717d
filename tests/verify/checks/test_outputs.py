from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from onnx import helper, numpy_helper

from onnxport.verify import Case, CheckResult, GraphContract, OrtRunner, Recorded, Statistics, Tolerance
from onnxport.verify.checks import load_check
from onnxport.verify.errors import VerificationError
from onnxport.verify.trial import Trial

STRICT = Tolerance(rtol=1e-3, atol=1e-4)


@pytest.fixture
def ask(
    build, save, reference: Recorded, cases: list[Case], contract: GraphContract
) -> Callable[..., list[CheckResult]]:
    """Puts a check to a changed graph in the real ONNX Runtime."""

    def ask(check: str, criterion=STRICT, **changes: object) -> list[CheckResult]:
        with OrtRunner(save(build(**changes)), threads=1) as candidate:
            trial = Trial(
                reference, candidate, cases, criterion, contract=contract, component="model", variant="candidate"
            )
            return load_check(check)(trial)

    return ask


def verdicts(results: list[CheckResult]) -> dict[tuple[str | None, str | None], str]:
    return {(r.case, r.output): r.verdict for r in results}


EVERYTHING = [(case, output) for case in ("plain", "padded") for output in ("hidden", "pooled")]
ALL_PASS = dict.fromkeys(EVERYTHING, "pass")
ALL_FAIL = dict.fromkeys(EVERYTHING, "fail")


@pytest.mark.parametrize("check", ["outputs.match", "golden.match"])
def test_the_same_graph_matches(check: str, ask) -> None:
    results = ask(check)
    assert verdicts(results) == ALL_PASS
    assert {r.id for r in results} == {check}
    assert {(r.rtol, r.atol) for r in results} == {(1e-3, 1e-4)}
    assert [r.compared for r in results] == [24, 8, 16, 8]


@pytest.mark.parametrize("check", ["outputs.match", "golden.match"])
def test_a_perturbed_weight(check: str, ask) -> None:
    results = ask(check, perturb=0.05)
    assert verdicts(results) == ALL_FAIL
    assert results[0].worst_ratio > 1
    assert "outside the tolerance; worst at [" in results[0].detail


def test_inputs_that_feed_the_wrong_place(build, save, reference, cases, contract) -> None:
    model = build()
    model.graph.node[0].input[1] = "attention_mask"  # Gather
    model.graph.node[2].input[0] = "input_ids"  # Cast to the mask
    with OrtRunner(save(model), threads=1) as candidate:
        trial = Trial(reference, candidate, cases, STRICT, contract=contract, component="m", variant="v")
        assert set(verdicts(load_check("outputs.match")(trial)).values()) == {"fail"}


def test_missing_and_extra_outputs(ask) -> None:
    results = ask("outputs.match", outputs=("hidden", "float_mask"))
    found = verdicts(results)
    assert found["plain", "hidden"] == "pass"
    assert found["plain", "pooled"] == "fail"
    assert found["plain", "float_mask"] == "fail"
    assert {r.detail for r in results if r.output == "pooled"} == {
        "the candidate has no output pooled; it has hidden, float_mask"
    }


def test_a_shape_that_would_broadcast(ask) -> None:
    one_row = [helper.make_node("ReduceMean", ["states"], ["hidden"], axes=[0])]
    results = ask("outputs.match", hidden=one_row)
    assert [r.detail for r in results if r.output == "hidden"] == [
        "shape [1, 3, 4], expected [2, 3, 4]",
        "shape [1, 5, 4], expected [2, 5, 4]",
    ]
    assert results[0].compared is None


def test_another_dtype(build, save, reference, cases, contract) -> None:
    model = build(hidden=[helper.make_node("Cast", ["states"], ["hidden"], to=10)])
    model.graph.output[0].type.tensor_type.elem_type = 10
    with OrtRunner(save(model), threads=1) as candidate:
        trial = Trial(reference, candidate, cases, STRICT, contract=contract, component="m", variant="v")
        results = load_check("outputs.match")(trial)
    assert [r.detail for r in results if r.output == "hidden"] == ["dtype float16, expected float32"] * 2


def test_a_case_that_the_candidate_cannot_run_fails_and_the_others_go_on(ask) -> None:
    three = {"initializers": [numpy_helper.from_array(np.array([2, 3, 4]), "baked")]}
    baked = [helper.make_node("Reshape", ["states", "baked"], ["hidden"])]
    results = ask("outputs.match", hidden=baked, **three)
    assert verdicts(results) == {("plain", "hidden"): "pass", ("plain", "pooled"): "pass", ("padded", None): "fail"}
    assert "Reshape" in results[-1].detail


PAD = [
    helper.make_node("Sub", ["one", "weight_mask"], ["padding"]),
    helper.make_node("Mul", ["padding", "much"], ["noise"]),
    helper.make_node("Add", ["states", "noise"], ["hidden"]),
]
PAD_CONSTANTS = [
    numpy_helper.from_array(np.array([1], np.float32), "one"),
    numpy_helper.from_array(np.array([50], np.float32), "much"),
]


def test_a_difference_in_the_padding_alone_passes(ask) -> None:
    results = ask("outputs.match", hidden=PAD, initializers=PAD_CONSTANTS)
    assert verdicts(results) == ALL_PASS
    padded = next(r for r in results if (r.case, r.output) == ("padded", "hidden"))
    assert padded.padded_max_abs_diff == pytest.approx(50)
    assert padded.max_abs_diff == 0
    assert next(r for r in results if (r.case, r.output) == ("plain", "hidden")).padded_max_abs_diff is None


def test_a_real_token_between_the_padding_is_not_hidden(build, save, reference, cases, contract) -> None:
    with OrtRunner(save(build(hidden=PAD, initializers=PAD_CONSTANTS)), threads=1) as runner:
        found = {case.name: runner.run(case) for case in cases}
    found["padded"]["hidden"][1, 0, 3] += 0.01  # the only real token of its row
    trial = Trial(reference, Recorded("x", found), cases, STRICT, contract=contract, component="m", variant="v")
    results = load_check("outputs.match")(trial)
    assert [(r.case, r.output) for r in results if r.verdict == "fail"] == [("padded", "hidden")]
    failed = next(r for r in results if r.verdict == "fail")
    assert "1 of 16 elements are outside the tolerance; worst at [1, 0, 3]" in failed.detail
    assert failed.max_abs_diff == pytest.approx(0.01, rel=1e-3)


# outputs.finite


def test_nan_and_inf(ask) -> None:
    zero = {"initializers": [numpy_helper.from_array(np.array([0], np.float32), "zero")]}
    nodes = [helper.make_node("Div", ["states", "zero"], ["hidden"])]
    assert verdicts(ask("outputs.match", hidden=nodes, **zero))["plain", "hidden"] == "fail"
    hidden, pooled = ask("outputs.finite", hidden=nodes, **zero)
    assert (hidden.output, hidden.verdict) == ("hidden", "fail")
    assert hidden.detail == "NaN or Inf where the reference has none: 24 elements in plain, 16 elements in padded"
    assert (pooled.output, pooled.verdict) == ("pooled", "pass")


def test_nan_in_the_padding_is_no_nan(ask) -> None:
    nodes = [helper.make_node("Div", ["states", "weight_mask"], ["hidden"])]  # x / 0 where padded
    assert [r.verdict for r in ask("outputs.finite", hidden=nodes)] == ["pass", "pass"]
    assert verdicts(ask("outputs.match", hidden=nodes)) == ALL_PASS


def test_nan_that_the_reference_has_too(reference, cases, contract) -> None:
    outputs = {name: {k: v.copy() for k, v in found.items()} for name, found in reference.outputs.items()}
    outputs["plain"]["hidden"][0, 0, 0] = np.nan
    with_nan = Recorded("nan", outputs)
    trial = Trial(with_nan, with_nan, cases, STRICT, contract=contract, component="m", variant="v")
    assert verdicts(load_check("outputs.match")(trial)) == ALL_PASS
    assert [r.verdict for r in load_check("outputs.finite")(trial)] == ["pass", "pass"]
    trial = Trial(with_nan, reference, cases, STRICT, contract=contract, component="m", variant="v")
    assert verdicts(load_check("outputs.match")(trial))["plain", "hidden"] == "fail"


def test_nothing_ran_nothing_is_finite(reference, cases, contract) -> None:
    silent = Recorded("silent", {})
    trial = Trial(reference, silent, cases, STRICT, contract=contract, component="m", variant="v")
    assert [r.verdict for r in load_check("outputs.finite")(trial)] == ["skip"]
    assert [r.verdict for r in load_check("outputs.sensitive")(trial)] == ["skip"]
    assert verdicts(load_check("outputs.match")(trial)) == {("plain", None): "fail", ("padded", None): "fail"}


# outputs.sensitive


@pytest.fixture
def sensitive(cases: list[Case], contract: GraphContract):
    def sensitive(outputs: Mapping[str, Mapping[str, np.ndarray]], criterion) -> dict[str, CheckResult]:
        same = Recorded("same", outputs)
        trial = Trial(same, same, cases, criterion, contract=contract, component="m", variant="v")
        assert verdicts(load_check("outputs.match")(trial)) == ALL_PASS
        return {r.output: r for r in load_check("outputs.sensitive")(trial)}

    return sensitive


def scaled(reference: Recorded, factor: float) -> dict[str, dict[str, np.ndarray]]:
    scale = np.float32(factor)
    return {case: {"hidden": f["hidden"] * scale, "pooled": f["pooled"]} for case, f in reference.outputs.items()}


@pytest.mark.parametrize(
    ("factor", "criterion", "verdict"),
    [
        (1.0, STRICT, "pass"),
        (0.0, STRICT, "fail"),
        (1e-9, STRICT, "fail"),
        (1e-9, Tolerance(rtol=1e-3, atol=1e-12), "pass"),
        (1.0, Tolerance(rtol=1.0, atol=0.0), "fail"),  # any zero is within 100 % of anything
        (1.0, Tolerance(rtol=0.0, atol=100.0), "fail"),
        (1.0, Statistics(min_cosine=0.9), "pass"),
        (0.0, Statistics(min_cosine=0.9), "fail"),
        (1.0, Statistics(min_cosine=-1, max_rms_error=1.0), "fail"),
    ],
)
def test_a_check_that_could_not_have_failed(factor, criterion, verdict, sensitive, reference) -> None:
    found = sensitive(scaled(reference, factor), criterion)
    assert found["hidden"].verdict == verdict
    assert found["hidden"].reference_rms is not None
    assert found["hidden"].compared == 40


def test_large_values_in_the_padding_do_not_make_it_sensitive(sensitive, reference) -> None:
    outputs = scaled(reference, 0.0)
    outputs["padded"]["hidden"][1, 1:] = 100
    assert sensitive(outputs, STRICT)["hidden"].verdict == "fail"


def test_a_reference_below_atol_with_one_large_element(sensitive, reference) -> None:
    outputs = scaled(reference, 0.0)
    outputs["plain"]["hidden"][0, 0, 0] = 2e-4  # zeros would fail there, and everywhere else pass
    found = sensitive(outputs, STRICT)["hidden"]
    assert found.verdict == "fail"
    assert found.detail.startswith("the reference is below atol 0.0001")


# statistics


def test_statistics_on_a_real_graph(ask) -> None:
    criterion = Statistics(min_cosine=0.95, min_argmax_agreement=0.9, decisions={"hidden": -1})
    good = ask("outputs.match", criterion, perturb=0.001)
    assert verdicts(good) == {**ALL_PASS, (None, "hidden"): "pass"}
    assert good[0].argmax_agreement == 1
    assert good[1].argmax_agreement is None
    for r in good:
        assert (r.min_cosine_allowed, r.max_rms_error_allowed, r.min_argmax_agreement_allowed) == (0.95, 0.5, 0.9)
        assert (r.min_sqnr_db_allowed, r.max_p99_error_allowed) == (6.02, 1.5)
        assert (r.top_k, r.min_topk_agreement_allowed) == (5, 0.0)
        assert (r.rtol, r.worst_ratio) == (None, None)
    for scale in (-1.0, 3.0):
        by_case = [r for r in ask("outputs.match", criterion, scale=scale) if r.case is not None]
        assert verdicts(by_case) == ALL_FAIL


@pytest.mark.parametrize(("wanted", "verdict"), [(0.0, "pass"), (1.0, "fail")])
def test_decisions_are_judged_over_all_cases(ask, wanted: float, verdict: str) -> None:
    loose = Statistics(min_cosine=-1, max_rms_error=99, min_argmax_agreement=wanted, decisions={"hidden": -1})
    found = ask("outputs.match", loose, scale=-1.0)
    (pooled,) = [r for r in found if r.case is None]
    assert (pooled.output, pooled.verdict) == ("hidden", verdict)
    assert pooled.argmax_agreement is not None
    assert pooled.argmax_agreement < 0.5
    assert "decisions kept, in" in pooled.detail
    assert all(r.verdict == "pass" for r in found if r.case is not None)


def test_decisions_on_outputs_that_are_not_there(ask) -> None:
    with pytest.raises(VerificationError, match="Decisions are to be taken on logits"):
        ask("outputs.match", Statistics(min_cosine=0.9, decisions={"logits": -1}))
