from __future__ import annotations

import re
from pathlib import Path

import onnxruntime
import pytest

from onnxport.verify.checks import load_check
from onnxport.verify.inspection import Inspection, Unavailable


def ask(check: str, subject) -> tuple[str, str]:
    with Inspection(subject) as inspection:
        (result,) = load_check(check)(inspection)
    return result.verdict, result.detail


def test_a_graph_that_loads(build, save, subject_of) -> None:
    subject = subject_of(save(build()))
    assert ask("session.loads", subject) == ("pass", "loads with intra_op_num_threads=1")
    assert ask("session.provider", subject)[0] == "pass"


def test_a_graph_that_does_not_load(build, save, tmp_path: Path, subject_of) -> None:
    model = build()
    model.graph.node[1].op_type = "NoSuchOperator"
    subject = subject_of(save(model))
    verdict, detail = ask("session.loads", subject)
    assert verdict == "fail"
    assert "NoSuchOperator" in detail
    assert str(tmp_path) not in detail
    with Inspection(subject) as inspection, pytest.raises(Unavailable):
        load_check("session.provider")(inspection)


def test_a_missing_file(tmp_path: Path, subject_of) -> None:
    verdict, detail = ask("session.loads", subject_of(tmp_path / "model.onnx"))
    assert verdict == "fail"
    assert detail == "There is no file model.onnx. Give the path of a .onnx or .ort file."


def test_a_provider_that_is_not_there(build, save, subject_of) -> None:
    subject = subject_of(save(build()), provider="NoSuchProvider")
    verdict, detail = ask("session.provider", subject)
    assert verdict == "fail"
    assert detail.startswith("NoSuchProvider is not available")
    assert ask("session.loads", subject)[0] == "skip"


def test_nodes_that_fall_back_without_a_word(build, save, subject_of) -> None:
    """Azure's provider is in every ONNX Runtime, and takes no node of a graph like this one."""
    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime is built without Azure's provider")
    subject = subject_of(save(build()), provider="AzureExecutionProvider")
    assert ask("session.loads", subject)[0] == "pass"
    verdict, detail = ask("session.provider", subject)
    assert verdict == "fail"
    assert "on CPUExecutionProvider; not on AzureExecutionProvider: MatMul" in detail
    verdict, detail = ask("session.provider", subject_of(subject.path))
    assert verdict == "pass"
    assert re.fullmatch(r"runs on (\w+), asked for \1; nodes: \d+ on \1", detail)


def test_session_options_reach_the_session(build, save, subject_of) -> None:
    options = {"graph_optimization_level": "none", "intra_op_num_threads": "1"}
    subject = subject_of(save(build()), session_options=options)
    assert ask("session.loads", subject)[1] == "loads with graph_optimization_level=none, intra_op_num_threads=1"
    assert ask("session.loads", subject_of(subject.path, session_options={"graph_optimization_level": "most"}))[0] == (
        "fail"
    )


def test_the_session_is_released(build, save, subject_of) -> None:
    with Inspection(subject_of(save(build()))) as inspection:
        runner = inspection.runner
        assert runner.session is inspection.runner.session
    with pytest.raises(Exception, match="is closed"):
        _ = runner.session
