from __future__ import annotations

import os

import numpy as np
from onnx import helper, numpy_helper

from onnxport.verify import OrtRunner, Recorded
from onnxport.verify.checks import load_check

# x * (1 + erf(x / sqrt 2)) / 2, in the five operators that ONNX Runtime fuses into one.
GELU = [
    helper.make_node("Div", ["states", "root"], ["scaled"]),
    helper.make_node("Erf", ["scaled"], ["erf"]),
    helper.make_node("Add", ["erf", "one"], ["raised"]),
    helper.make_node("Mul", ["states", "raised"], ["doubled"]),
    helper.make_node("Mul", ["doubled", "half"], ["hidden"]),
]
CONSTANTS = [
    numpy_helper.from_array(np.array(value, np.float32), name)
    for name, value in (("root", 2**0.5), ("one", 1.0), ("half", 0.5))
]
EXACT = {"graph_optimization_level": "none", "intra_op_num_threads": "1"}


def ask(probe) -> dict[str, str]:
    results = load_check("levels.match")(probe)
    assert {r.id for r in results} == {"levels.match"}
    assert len({r.detail.partition(":")[0] for r in results}) == len(results)
    return {r.detail.partition(":")[0]: r.verdict for r in results}


def test_every_level(build, probe_of) -> None:
    levels = {f"level {level}": "pass" for level in ("none", "basic", "extended", "all")}
    assert ask(probe_of(build())) == levels
    threads = {f"threads {n}": "pass" for n in {1, os.cpu_count()}}
    assert ask(probe_of(build(), suite="full")) == {**levels, **threads}


def test_a_wrong_recording_fails_at_all(build, probe_of, reference, cases) -> None:
    outputs = {case: {name: array + 0.01 for name, array in o.items()} for case, o in reference.outputs.items()}
    probe = probe_of(build(), reference=Recorded("wrong", outputs), suite="full")
    assert set(ask(probe).values()) == {"fail"}


def test_a_graph_that_is_right_at_its_own_level_alone(build, save, probe_of, cases) -> None:
    """ONNX Runtime replaces erf by tanh where it fuses Gelu, if it is told to."""
    model = build(hidden=GELU, initializers=CONSTANTS, scale=4.0)
    with OrtRunner(save(model, "exact.onnx"), session_options=EXACT) as runner:
        exact = Recorded("exact", {case.name: runner.run(case) for case in cases})
    options = {**EXACT, "optimization.enable_gelu_approximation": "1"}
    probe = probe_of(model, reference=exact, session_options=options)
    assert {r.verdict for r in load_check("outputs.match")(probe.trial)} == {"pass"}
    found = ask(probe)
    assert (found["level none"], found["level basic"]) == ("pass", "pass")
    assert (found["level extended"], found["level all"]) == ("fail", "fail")


def test_a_file_that_does_not_load_again(build, save, probe_of) -> None:
    path = save(build())
    probe = probe_of(path)
    probe.trial.outcomes  # noqa: B018  (the subject has run when this check is put)
    path.unlink()
    assert ask(probe) == {"level none": "fail", "level basic": "fail", "level extended": "fail", "level all": "pass"}
