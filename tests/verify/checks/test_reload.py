from __future__ import annotations

import ast
import sys
from importlib.resources import files

import onnx

from onnxport.verify.checks import load_check


def ask(probe):
    (result,) = load_check("reload.match")(probe)
    assert result.id == "reload.match"
    return result


def test_a_fresh_process_gives_the_same(build, probe_of) -> None:
    result = ask(probe_of(build(), suite="full", session_options={"graph_optimization_level": "basic"}))
    assert result.verdict == "pass"
    assert result.detail.startswith("in a process of its own: 4 outputs agree")
    assert result.compared == 56


def test_a_file_that_is_another_by_now(build, save, probe_of) -> None:
    """The session that is open goes on with what it loaded: only a new process sees what servers will."""
    path = save(build())
    probe = probe_of(path)
    onnx.save(build(perturb=0.1), path)
    assert {r.verdict for r in load_check("outputs.match")(probe.trial)} == {"pass"}
    result = ask(probe)
    assert result.verdict == "fail"
    assert "4 of 4 outputs differ" in result.detail


def test_a_process_that_fails(build, save, probe_of, tmp_path) -> None:
    path = save(build())
    probe = probe_of(path)
    path.write_bytes(b"no protobuf")
    result = ask(probe)
    assert result.verdict == "fail"
    assert "the process ended with code 1" in result.detail
    assert str(tmp_path) not in result.detail


def test_the_process_knows_numpy_and_onnxruntime_alone() -> None:
    tree = ast.parse(files("onnxport.verify").joinpath("fresh_process.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported - sys.stdlib_module_names == {"numpy", "onnxruntime"}
