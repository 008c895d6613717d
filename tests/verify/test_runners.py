from __future__ import annotations

import onnx
import onnxruntime
import pytest

from onnxport.verify import Case, GraphContract, OrtRunner, Recorded
from onnxport.verify.errors import ProviderError, SessionError, VerificationError


@pytest.fixture
def path(build, save):
    return save(build())


def test_a_real_session(path, cases: list[Case], reference: Recorded, contract: GraphContract) -> None:
    with OrtRunner(path, threads=1) as runner:
        assert runner.name == "model.onnx"
        assert runner.provider == "CPUExecutionProvider"
        assert isinstance(runner.session, onnxruntime.InferenceSession)
        assert runner.contract.inputs == contract.inputs
        assert runner.contract.outputs == contract.outputs
        found = runner.run(cases[1])
    assert list(found) == ["hidden", "pooled"]
    assert (found["pooled"] == reference.run(cases[1])["pooled"]).all()


def test_closing_releases_the_session(path) -> None:
    runner = OrtRunner(path)
    runner.close()
    runner.close()
    with pytest.raises(SessionError, match=r"model\.onnx is closed"):
        _ = runner.session


def test_there_is_no_fallback_to_another_provider(path) -> None:
    with pytest.raises(ProviderError, match=r"NoSuchProvider is not available; this ONNX Runtime has .*CPUExecution"):
        OrtRunner(path, provider="NoSuchProvider")


def test_session_options(path) -> None:
    options = {
        "graph_optimization_level": "extended",
        "intra_op_num_threads": "2",
        "inter_op_num_threads": "1",
        "session.disable_prepacking": "1",
    }
    with OrtRunner(path, session_options=options, threads=1) as runner:
        used = runner.session.get_session_options()
        assert used.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        assert (used.intra_op_num_threads, used.inter_op_num_threads) == (1, 1)
        assert used.get_session_config_entry("session.disable_prepacking") == "1"
    with OrtRunner(path) as runner:
        used = runner.session.get_session_options()
        assert used.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"graph_optimization_level": "most"}, "must be one of none, basic, extended, all"),
        ({"intra_op_num_threads": "many"}, "must be a number of threads"),
        ({"": "1"}, "refuses the session option"),
    ],
)
def test_malformed_options(path, options, message: str) -> None:
    with pytest.raises(SessionError, match=message):
        OrtRunner(path, session_options=options)


def test_files_that_do_not_load(tmp_path) -> None:
    with pytest.raises(SessionError, match="There is no file"):
        OrtRunner(tmp_path / "missing.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"no protobuf")
    with pytest.raises(SessionError, match=r"does not load broken\.onnx"):
        OrtRunner(tmp_path / "broken.onnx")


def test_inputs_that_do_not_fit(path, cases: list[Case], capfd) -> None:
    ids = cases[0].inputs["input_ids"]
    with OrtRunner(path, threads=1) as runner:
        with pytest.raises(SessionError, match=r"failed on case lonely: .*attention_mask"):
            runner.run(Case("lonely", {"input_ids": ids}))
        with pytest.raises(SessionError, match="failed on case crooked"):
            runner.run(Case("crooked", {"input_ids": ids, "attention_mask": ids[:, :2]}))
    assert capfd.readouterr() == ("", "")


def test_dimensions_without_a_name(save) -> None:
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [value("x", onnx.TensorProto.FLOAT16, [None, 2])],
        [value("y", onnx.TensorProto.FLOAT16, [None, 2])],
    )
    path = save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8))
    with OrtRunner(path) as runner:
        assert runner.contract.inputs[0].shape == ("?x.0", 2)
        assert runner.contract.outputs[0].dtype == "float16"


def test_recorded_outputs(cases: list[Case], reference: Recorded) -> None:
    replay = Recorded("golden", {"plain": reference.run(cases[0])})
    assert set(replay.run(cases[0])) == {"hidden", "pooled"}
    with pytest.raises(VerificationError, match="golden holds no outputs for case padded; it has those of plain"):
        replay.run(cases[1])


def test_a_provider_that_onnx_runtime_drops_is_refused(path, monkeypatch) -> None:
    """As where the package has the provider and its libraries are missing: the session would run on the CPU instead."""
    here = onnxruntime.get_available_providers()
    absent = next(name for name in onnxruntime.get_all_providers() if name not in here)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [absent, *here])
    with (
        pytest.warns(UserWarning, match=absent),
        pytest.raises(ProviderError, match=f"was to run on {absent} and would run on CPUExecutionProvider"),
    ):
        OrtRunner(path, provider=absent)
