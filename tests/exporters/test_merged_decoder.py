"""decoder_model_merged: one graph that answers as both graphs of the decoder do, and faults that must show."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxport.exporters import Recipe, export, load_bundle
from onnxport.exporters.bundle import Bundle
from onnxport.exporters.checkpoint import load_checkpoint
from onnxport.exporters.choice import Choice
from onnxport.exporters.choice_graph import choice_graph
from onnxport.exporters.cli.app import run
from onnxport.exporters.components import split
from onnxport.exporters.errors import BundleError, RecipeError, VariantError
from onnxport.exporters.generation.generation import CASE
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.localization.search import localize
from onnxport.exporters.onnx_writer import write_model
from onnxport.exporters.source import find_folder
from onnxport.exporters.verification import verify_bundle
from onnxport.verify.contract import AxisRange, GraphContract, TensorSpec
from zoo.encoder_decoders import write_text_model

MERGED, CHOOSES = "decoder_model_merged", "use_cache_branch"
KINDS = ("decoder.key", "decoder.value", "encoder.key", "encoder.value")


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("t5")
    source = folder / "source"
    source.mkdir()
    write_text_model("t5", source)
    return export(source, folder / "out", recipe=Recipe(merged=True, engine="torchscript"))


def test_it_has_the_inputs_and_outputs_that_loaders_know(t5: Bundle) -> None:
    assert list(t5.manifest.components) == ["encoder_model", "decoder_model", "decoder_with_past_model", MERGED]
    merged = t5.component(MERGED)
    past = [f"past_key_values.{n}.{kind}" for n in range(3) for kind in KINDS]
    assert {spec.name for spec in merged.inputs} == {
        *("input_ids", "encoder_attention_mask", "encoder_hidden_states", CHOOSES),
        *past,
    }
    assert [spec.name for spec in merged.inputs if spec.name in past] == past
    assert [spec.name for spec in merged.outputs] == [
        "logits",
        *(p.replace("past_key_values", "present") for p in past),
    ]
    shapes = {spec.name: spec.shape for spec in (*merged.inputs, *merged.outputs)}
    assert shapes[CHOOSES] == (1,)
    assert shapes["past_key_values.2.encoder.key"] == ("batch", 4, "past_encoder_sequence", 12)
    assert shapes["present.2.encoder.key"] == ("batch", 4, "encoder_sequence", 12)
    assert shapes["present.2.decoder.value"] == ("batch", 4, "past_decoder_sequence+decoder_sequence", 12)
    for axis in ("past_decoder_sequence", "past_encoder_sequence"):
        assert {0, 1} <= set(merged.axes[axis].proven), "a first step has nothing cached"


def test_both_branches_and_generation_agree_with_pytorch(t5: Bundle) -> None:
    checks = [check for check in t5.report().checks if check.component == MERGED and check.id == "outputs.match"]
    assert t5.manifest.verification.verdict == "pass"
    for variant in ("base", "optimized"):
        words = {(check.case or "").partition(".")[0] for check in checks if check.variant == variant}
        assert words == {"first", "next", "generate"}
    generated = [check for check in t5.report().checks if check.case == CASE]
    assert {(check.component, check.variant, check.verdict) for check in generated} == {
        (component, variant, "pass")
        for variant in ("base", "optimized")
        for component in ("decoder_with_past_model", MERGED)
    }


def test_weights_of_both_branches_are_stored_once(t5: Bundle) -> None:
    sizes = {name: t5.component(name).variants["base"].size_bytes for name in t5.manifest.components}
    graph = onnx.load(t5.path / f"{MERGED}.onnx").graph
    (node,) = graph.node
    large = [tensor.raw_data for tensor in graph.initializer if len(tensor.raw_data) >= 1024]
    assert len(large) == len(set(large)) > 20
    inside = [tensor for attribute in node.attribute for tensor in attribute.g.initializer]
    assert max(len(tensor.raw_data) for tensor in inside) < 1024
    # The second graph adds its nodes, and of its weights none: it has no more than the first.
    first, further = (
        onnx.load(t5.path / f"{name}.onnx").graph for name in ("decoder_model", "decoder_with_past_model")
    )
    own = {tensor.raw_data for tensor in first.initializer if len(tensor.raw_data) >= 1024}
    assert {tensor.raw_data for tensor in further.initializer if len(tensor.raw_data) >= 1024} <= own
    assert set(large) == own
    shared = sum(map(len, set(large)))
    assert sizes[MERGED] < sizes["decoder_model"] + sizes["decoder_with_past_model"] - 0.5 * shared


def test_each_branch_reads_its_own_inputs_only(t5: Bundle) -> None:
    """Before the first step loaders give a cache of any length, and after it the states again."""
    session = onnxruntime.InferenceSession(t5.path / f"{MERGED}.onnx")
    cases = {case.name: case for case in _merged(t5).cases("quick")}
    first, further = (next(c for n, c in cases.items() if n.startswith(word)) for word in ("first", "next"))
    assert not first.inputs[CHOOSES].any()
    assert further.inputs[CHOOSES].all()
    cached = {
        name: np.ones((*array.shape[:2], 1, array.shape[3]), array.dtype)
        for name, array in first.inputs.items()
        if name.startswith("past")
    }
    states = {"encoder_hidden_states": np.ones_like(further.inputs["encoder_hidden_states"])}
    for case, other in ((first, cached), (further, states)):
        expected = session.run(None, dict(case.inputs))
        found = session.run(None, {**case.inputs, **other})
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    turned = {**further.inputs, CHOOSES: ~further.inputs[CHOOSES]}
    assert not np.allclose(session.run(["logits"], turned)[0], expected[0], rtol=1e-3, atol=1e-4)


def test_exchanged_branches_are_seen(t5: Bundle, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(t5.path, copy)
    model = onnx.load(copy / f"{MERGED}.onnx")
    names = {"then_branch": "else_branch", "else_branch": "then_branch"}
    for attribute in model.graph.node[0].attribute:
        attribute.name = names[attribute.name]
    onnx.save(model, copy / f"{MERGED}.onnx")
    failed = {
        (check.component, check.variant, (check.case or "").partition(".")[0])
        for check in verify_bundle(load_bundle(copy), variants=["base"]).checks
        if check.verdict == "fail" and check.id == "golden.match"
    }
    assert failed == {(MERGED, "base", word) for word in ("first", "next", "generate")}


def test_it_cannot_be_localized_but_its_parts_can(t5: Bundle, tmp_path: Path) -> None:
    source = str(t5.path.parent / "source")
    with pytest.raises(BundleError, match="made of decoder_with_past_model and decoder_model"):
        localize(t5, source, HubOptions(), tmp_path / "out", component=MERGED)


def _merged(bundle: Bundle, **recipe: Any) -> Any:
    hub = HubOptions()
    source = find_folder(str(bundle.path.parent / "source"), hub)
    return split(load_checkpoint(source, Recipe(merged=True, **recipe), hub))[MERGED]


def test_a_fixed_number_of_earlier_tokens_leaves_no_first_step(t5: Bundle) -> None:
    with pytest.raises(RecipeError, match="takes the first step"):
        _merged(t5, static={"past_decoder_sequence": 4})
    with pytest.raises(RecipeError, match="fixes decoder_sequence at 3 for the first step"):
        _merged(t5, static={"decoder_sequence": 3})
    assert _merged(t5, static={"decoder_sequence": 1}).axes["decoder_sequence"].fixed == 1
    fixed = _merged(t5, static={"encoder_sequence": 9, "batch": 2})
    lengths = {case.inputs["past_key_values.0.encoder.key"].shape[2] for case in fixed.cases("quick")}
    assert lengths == {0, 9}


def test_other_models_are_refused(
    make_checkpoint: Callable[..., Path],
    plain_modules: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for source in (str(make_checkpoint("bert")), f"{plain_modules}:tagger"):
        assert run(["export", source, str(tmp_path / "out"), "--merged"]) == 2
        told = capsys.readouterr().err
        assert "merged (--merged) puts the decoder of an encoder-decoder model into one graph" in told
        assert "Traceback" not in told
        assert not (tmp_path / "out").exists()


def _graph(path: Path, op: str, output: str, opset: int = 17) -> Path:
    weight = onnx.numpy_helper.from_array(np.arange(512, dtype=np.float32), "weight")
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [512]) for name in ("x", output))
    node = onnx.helper.make_node(op, ["x", "weight"], [output], name="node")
    graph = onnx.helper.make_graph([node], "g", [x], [y], [weight])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8), path)
    return path


CHOICE = Choice("which", "plus", "times")


def _contract(output: str = "y") -> GraphContract:
    x, y = (TensorSpec(name=name, dtype="float32", shape=(512,)) for name in ("x", output))
    which = TensorSpec(name="which", dtype="bool", shape=(1,))
    return GraphContract(inputs=(x, which), outputs=(y,), axes={"batch": AxisRange()}, opsets={"": 17})


def test_graphs_with_the_same_names_do_not_get_into_each_other(tmp_path: Path) -> None:
    """Nodes, values and weights of both are called alike; the weight has the same bytes."""
    plus, times = (_graph(tmp_path / f"{op}.onnx", op, "y") for op in ("Add", "Mul"))
    made = choice_graph(CHOICE, plus, times, _contract())
    assert made.shared == len(made.traced.weights) == 1
    write_model(made.traced.skeleton, made.traced.weights, tmp_path / "both.onnx")
    onnx.checker.check_model(tmp_path / "both.onnx", full_check=True)
    session = onnxruntime.InferenceSession(tmp_path / "both.onnx")
    x, weight = np.ones(512, np.float32) * 2, np.arange(512, dtype=np.float32)
    for which, expected in ((True, x + weight), (False, x * weight)):
        assert np.array_equal(session.run(None, {"x": x, "which": np.array([which])})[0], expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(_graph, op="Add", output="y", opset=18), "import versions 17 and 18 of the domain ai.onnx"),
        (partial(_graph, op="Add", output="z"), "has no output y; it returns z"),
    ],
)
def test_graphs_that_do_not_go_together_are_refused(tmp_path: Path, make: Callable[..., Path], message: str) -> None:
    times = _graph(tmp_path / "times.onnx", "Mul", "y")
    with pytest.raises(VariantError, match=message):
        choice_graph(CHOICE, make(tmp_path / "plus.onnx"), times, _contract())
