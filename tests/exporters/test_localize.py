"""Faults of real kinds are planted in a bundle, and the layer or the pass that is wrong is named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from safetensors.numpy import load_file

from onnxport.exporters.bundle import load_bundle, seal
from onnxport.exporters.cli.app import run
from onnxport.exporters.errors import BundleError
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.loading import load
from onnxport.exporters.localization.findings import LayerFinding, Localization
from onnxport.exporters.localization.reproduction import write_reproduction
from onnxport.exporters.localization.search import localize
from onnxport.exporters.pipeline import export
from onnxport.exporters.recipe import Recipe
from onnxport.verify.cases import Case
from onnxport.verify.dissection import Dissection
from onnxport.verify.errors import VerificationError
from onnxport.verify.tolerance import Statistics

CheckpointMaker = Callable[..., Path]
Fault = Callable[[onnx.GraphProto], None]

LAYER = "/model/encoder/layer.1"
CASE = "random.2x8"


@pytest.fixture(scope="module")
def checkpoint(make_checkpoint: CheckpointMaker) -> Path:
    return make_checkpoint("bert", "feature-extraction", tokenizer=False)


@pytest.fixture(scope="module")
def bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundles") / "tiny"
    export(str(checkpoint), out, recipe=Recipe(suite="quick"))
    return out


@pytest.fixture(scope="module")
def dynamo_bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dynamo-bundles") / "tiny"
    export(str(checkpoint), out, recipe=Recipe(suite="quick", engine="dynamo"))
    return out


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


def plant(root: Path, fault: Fault, file: str = "model.onnx") -> None:
    """Edits a graph of a bundle and seals it again: nothing but what it computes gives the fault away."""
    model = onnx.load(root / file)
    fault(model.graph)
    onnx.save(model, root / file)
    seal(root, load_bundle(root).manifest)


def look(root: Path, checkpoint: Path, *variants: str, case: str | None = CASE) -> Localization:
    out = root.with_name("found")
    return localize(load_bundle(root), str(checkpoint), HubOptions(), out, variants=variants or None, case=case)


def traced_sizes(checkpoint: Path) -> tuple[int, int]:
    sizes = load(str(checkpoint), Recipe(), HubOptions()).component().example
    return sizes["batch"], sizes["sequence"]


def node(graph: onnx.GraphProto, name: str) -> onnx.NodeProto:
    return next(node for node in graph.node if node.name == name)


def change_weight(graph: onnx.GraphProto, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    tensor = next(tensor for tensor in graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(numpy_helper.to_array(tensor))), name))


def transposed_weight(graph: onnx.GraphProto) -> None:
    change_weight(graph, f"{LAYER}/attention/output/dense/Transpose_output_0", np.transpose)


def zeroed_bias(graph: onnx.GraphProto) -> None:
    change_weight(graph, "model.encoder.layer.1.output.dense.bias", np.zeros_like)


def wrong_epsilon(graph: onnx.GraphProto, layer: str = LAYER, epsilon: float = 0.1) -> None:
    norm = node(graph, f"{layer}/attention/output/LayerNorm/LayerNormalization")
    next(attribute for attribute in norm.attribute if attribute.name == "epsilon").f = epsilon


def slightly_wrong_epsilon(graph: onnx.GraphProto) -> None:
    """The layer itself is within the tolerance; what comes of it at the end is not."""
    wrong_epsilon(graph, "/model/encoder/layer.0", 1e-3)


def gelu_by_tanh(graph: onnx.GraphProto) -> None:
    """x (1 + tanh(c (x + 0.044715 x^3))) / 2 in place of the one with erf."""
    scope = f"{LAYER}/intermediate/intermediate_act_fn"
    x, new = f"{LAYER}/intermediate/dense/Add_output_0", []
    for name, value in {"c": 0.7978845608, "a": 0.044715, "one": 1.0, "half": 0.5}.items():
        new.append(helper.make_node("Constant", [], [f"{scope}/{name}"], value_float=value))
    steps = [("Mul", x, x, "x2"), ("Mul", "x2", x, "x3"), ("Mul", "x3", "a", "ax3"), ("Add", x, "ax3", "sum")]
    steps += [("Mul", "sum", "c", "csum"), ("Tanh", "csum", "", "t"), ("Add", "t", "one", "t1"), ("Mul", x, "t1", "y")]
    steps += [("Mul", "y", "half", "Mul_1_output_0")]
    for op, a, b, out in steps:
        inputs = [name if name == x else f"{scope}/{name}" for name in (a, b) if name]
        new.append(helper.make_node(op, inputs, [f"{scope}/{out}"], name=f"{scope}/{op}_{out}"))
    old = [place for place, one in enumerate(graph.node) if one.name.startswith(f"{scope}/")]
    kept = [one for place, one in enumerate(graph.node) if place not in old]
    kept[old[0] : old[0]] = new
    del graph.node[:]
    graph.node.extend(kept)


def lost_residual(graph: onnx.GraphProto) -> None:
    add = node(graph, f"{LAYER}/attention/output/Add")
    add.input[1] = add.input[0]


def lost_modules(graph: onnx.GraphProto) -> None:
    """What an export leaves that says nothing of modules."""
    for number, one in enumerate(graph.node):
        one.name = f"node_{number}"
        del one.metadata_props[:]


def swapped_embeddings(graph: onnx.GraphProto) -> None:
    change_weight(graph, "model.embeddings.position_embeddings.weight", lambda table: table[::-1])


FAULTS: dict[Fault, str] = {
    transposed_weight: "encoder.layer.1.attention.output.dense",
    zeroed_bias: "encoder.layer.1.output.dense",
    wrong_epsilon: "encoder.layer.1.attention.output.LayerNorm",
    slightly_wrong_epsilon: "encoder.layer.0.attention.output.LayerNorm",
    gelu_by_tanh: "encoder.layer.1.intermediate.intermediate_act_fn",
    lost_residual: "encoder.layer.1.attention.output.LayerNorm",
    swapped_embeddings: "embeddings.position_embeddings",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_layer_of_a_fault_is_named_and_reproduced(fault: Fault, copy: Path, checkpoint: Path) -> None:
    plant(copy, fault)
    found = look(copy, checkpoint, "base")
    assert found.verdict == "diverges"
    (base,) = found.variants
    assert base.first is not None
    assert base.layers[base.first].module == FAULTS[fault]
    assert FAULTS[fault] in base.summary
    assert [layer.module for layer in base.layers if layer.verdict == "diverges"] == [FAULTS[fault]]
    assert all(layer.verdict == "agrees" for layer in base.layers[: base.first])
    assert base.layers[-1].verdict == "inherited"

    folder = copy.with_name("found")
    script = folder / "base" / "reproduce.py"
    ended = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1, ended.stderr
    number = base.layers[base.first].alone_max_abs_diff
    assert f"largest difference {number:.6g}" in ended.stdout
    assert not {"torch", "onnxport", "onnx "} & set(script.read_text().split())
    assert sum(file.stat().st_size for file in folder.rglob("*")) < 200_000
    assert Localization.model_validate_json((folder / "localization.json").read_bytes()) == found


def test_a_reproduction_that_is_put_right_agrees(copy: Path, checkpoint: Path) -> None:
    plant(copy, zeroed_bias)
    look(copy, checkpoint, "base")
    folder = copy.with_name("found") / "base"
    model = onnx.load(folder / "layer.onnx")
    right = load_file(checkpoint / "model.safetensors")["encoder.layer.1.output.dense.bias"]
    change_weight(model.graph, "model.encoder.layer.1.output.dense.bias", lambda _: right)
    onnx.save(model, folder / "layer.onnx")
    ended = subprocess.run([sys.executable, folder / "reproduce.py"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(("change", "code"), [(lambda y: 1.1 * y, 0), (lambda y: 3 * y, 1), (lambda y: -y, 1)])
def test_a_reproduction_by_statistics(change: Callable[[np.ndarray], np.ndarray], code: int, tmp_path: Path) -> None:
    spec = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 8])
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 8])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [spec], [out])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "g.onnx")
    x = np.random.default_rng(0).normal(0, 1, (4, 8)).astype(np.float32)
    expected = change(np.maximum(x, 0)).astype(np.float32)
    layer = LayerFinding(module="act", kind="ReLU", value="y", operators=("Relu",), verdict="diverges")
    criterion = Statistics(min_cosine=0.95, max_rms_error=0.5)
    folder = tmp_path / "layer"
    write_reproduction(folder, Dissection(tmp_path / "g.onnx"), layer, Case("c", {"x": x}), {}, expected, criterion, {})
    ended = subprocess.run([sys.executable, folder / "reproduce.py"], capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert "times what is allowed (RMS 0.5 of the expected, cosine 0.95)" in ended.stdout


def test_two_faults_are_two_new_errors(copy: Path, checkpoint: Path) -> None:
    def both(graph: onnx.GraphProto) -> None:
        swapped_embeddings(graph)
        zeroed_bias(graph)

    plant(copy, both)
    (base,) = look(copy, checkpoint, "base").variants
    wrong = [layer.module for layer in base.layers if layer.verdict == "diverges"]
    assert wrong == [FAULTS[swapped_embeddings], FAULTS[zeroed_bias]]
    assert "so are 1 layers after it" in base.summary


def test_a_graph_that_fails_at_other_sizes_is_walked_in_pieces(copy: Path, checkpoint: Path) -> None:
    def baked_length(graph: onnx.GraphProto) -> None:
        shape = numpy_helper.from_array(np.array([*traced_sizes(checkpoint), 32], np.int64), "baked")
        graph.initializer.append(shape)
        node(graph, f"{LAYER}/attention/self/Reshape_3").input[1] = "baked"

    plant(copy, baked_length)
    (base,) = look(copy, checkpoint, "base", case="random.1x23").variants
    assert base.first is not None
    layer = base.layers[base.first]
    assert layer.module == "encoder.layer.1.attention.self"
    assert "Reshape_3" in (layer.failure or "")
    assert [one.verdict for one in base.layers].count("diverges") == 1


def test_a_layer_of_another_shape_is_named(copy: Path, checkpoint: Path) -> None:
    def broadcast_bias(graph: onnx.GraphProto) -> None:
        change_weight(graph, "model.encoder.layer.1.output.dense.bias", lambda bias: bias.reshape(1, 1, 1, -1))

    plant(copy, broadcast_bias)
    (base,) = look(copy, checkpoint, "base").variants
    assert base.first is not None
    layer = base.layers[base.first]
    assert layer.module == FAULTS[zeroed_bias]
    assert layer.failure == "shape [1, 2, 8, 32], expected [2, 8, 32]"
    assert [one.verdict for one in base.layers].count("diverges") == 1
    script = copy.with_name("found") / "base" / "reproduce.py"
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr == "the output is (1, 2, 8, 32), expected (2, 8, 32)\n"


def test_a_bundle_without_faults_agrees(bundle: Path, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "found"
    found = localize(load_bundle(bundle), str(checkpoint), HubOptions(), out)
    assert found.verdict == "agrees"
    assert not out.exists()
    base, optimized = found.variants
    assert len(base.layers) == 26  # every module that computes something
    assert {layer.verdict for layer in (*base.layers, *optimized.layers)} == {"agrees"}
    fused = {layer.module: layer for layer in optimized.layers}
    gelu = fused["encoder.layer.0.intermediate.intermediate_act_fn"]
    assert gelu.covers == ("encoder.layer.0.intermediate.dense",)
    assert gelu.operators == ("MatMul", "BiasGelu")


def test_a_fault_of_one_variant_is_found_in_its_block_and_not_blamed_on_the_steps(copy: Path, checkpoint: Path) -> None:
    def wrong_bias(graph: onnx.GraphProto) -> None:
        fused = next(one for one in graph.node if one.op_type == "BiasGelu")
        change_weight(graph, fused.input[1], lambda bias: bias + np.float32(0.1))

    plant(copy, wrong_bias, "model_optimized.onnx")
    base, optimized = look(copy, checkpoint).variants
    assert base.verdict == "agrees"
    assert optimized.first is not None
    layer = optimized.layers[optimized.first]
    assert layer.module == "encoder.layer.0.intermediate.intermediate_act_fn"
    assert optimized.blame is not None
    assert optimized.blame.stage == "none"
    assert "made again from base" in optimized.summary


def test_the_command_line(copy: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["localize", str(copy), "--against", str(checkpoint), "--variant", "base", "--case", CASE]
    assert run([*arguments, "--quiet"]) == 0
    told = capsys.readouterr()
    assert "base: all 26 layers agree" in told.out
    assert told.out.rstrip().endswith("agrees")

    plant(copy, transposed_weight)
    assert run([*arguments, "--all"]) == 1
    told = capsys.readouterr()
    wrong = [line for line in told.out.splitlines() if "diverges" in line and "encoder" in line]
    assert len(wrong) == 1
    assert wrong[0].endswith("encoder.layer.1.attention.output.dense")
    assert len([line for line in told.out.splitlines() if " inherited " in line]) == 7
    assert (copy.with_name("copy.localize") / "base" / "reproduce.py").is_file()

    assert run([*arguments, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["variants"][0]["layers"][document["variants"][0]["first"]]["verdict"] == "diverges"


def test_a_failure_without_numbers_is_told(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--suite", "quick", "--require-fusion", "Attention=9", "--engine", "torchscript", "--quiet"]
    assert run(["export", str(checkpoint), str(tmp_path / "out"), *flags]) == 1
    capsys.readouterr()
    assert run(["localize", str(tmp_path / "out.failed"), "--against", str(checkpoint), "--variant", "base"]) == 0
    told = capsys.readouterr().out
    assert "the export failed on fusion.expected, which is no numeric difference" in told


def test_what_cannot_be_asked(bundle: Path, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    loaded = load_bundle(bundle)
    with pytest.raises(BundleError, match="not from an earlier localisation"):
        localize(loaded, str(checkpoint), HubOptions(), tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()
    with pytest.raises(VerificationError, match=r"random\.2x8"):
        localize(loaded, str(checkpoint), HubOptions(), tmp_path / "out", case="random.2x9")
    with pytest.raises(BundleError, match="no variant 'optimised'"):
        localize(loaded, str(checkpoint), HubOptions(), tmp_path / "out", variants=["optimised"])


def test_layers_of_a_graph_of_torch_export(dynamo_bundle: Path, checkpoint: Path, tmp_path: Path) -> None:
    found = localize(load_bundle(dynamo_bundle), str(checkpoint), HubOptions(), tmp_path / "found")
    base, optimized = found.variants
    assert found.verdict == base.verdict == optimized.verdict == "agrees"
    assert len(base.layers) == 26  # as in the traced graph
    assert {layer.verdict for layer in (*base.layers, *optimized.layers)} == {"agrees"}
    gelu = next(layer for layer in optimized.layers if layer.kind == "GELUActivation")
    assert gelu.covers == ("encoder.layer.0.intermediate.dense",)  # transformers 4.57 fuses no attention here


def test_a_fault_in_a_graph_of_torch_export_is_named_and_reproduced(
    dynamo_bundle: Path, checkpoint: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(dynamo_bundle, tmp_path / "copy"))
    plant(root, zeroed_bias)
    (base,) = look(root, checkpoint, "base").variants
    assert [layer.module for layer in base.layers if layer.verdict == "diverges"] == [FAULTS[zeroed_bias]]
    assert FAULTS[zeroed_bias] in base.summary
    assert base.layers[-1].verdict == "inherited"
    script = tmp_path / "found" / "base" / "reproduce.py"
    ended = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1, ended.stderr
    assert base.first is not None
    assert f"largest difference {base.layers[base.first].alone_max_abs_diff:.6g}" in ended.stdout


def test_calls_of_one_module_are_told_apart(make_checkpoint: CheckpointMaker, tmp_path: Path) -> None:
    """ALBERT has one layer, which it runs twice."""
    checkpoint = make_checkpoint("albert", "feature-extraction", tokenizer=False)
    root = tmp_path / "copy"
    export(str(checkpoint), root, recipe=Recipe(suite="quick", engine="dynamo", variants=("base",)))
    module = "encoder.albert_layer_groups.0.albert_layers.0.ffn"

    def wrong_the_second_time(graph: onnx.GraphProto) -> None:
        *_, last = (one for one in graph.node if f"model.{module}.bias" in one.input)
        graph.initializer.append(numpy_helper.from_array(np.float32([1.0]), "other"))
        last.input[list(last.input).index(f"model.{module}.bias")] = "other"

    plant(root, wrong_the_second_time)
    (base,) = look(root, checkpoint).variants
    assert [layer.verdict for layer in base.layers if layer.module == module] == ["agrees", "diverges"]
    assert [layer.module for layer in base.layers if layer.verdict == "diverges"] == [module]


@pytest.mark.parametrize("engine", ["torchscript", "dynamo"])
def test_a_graph_of_which_no_layer_is_known_does_not_agree(
    engine: str,
    bundle: Path,
    dynamo_bundle: Path,
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = Path(shutil.copytree(dynamo_bundle if engine == "dynamo" else bundle, tmp_path / "copy"))
    plant(root, lost_modules)
    command = ["localize", str(root), "--against", str(checkpoint), "--case", CASE]
    assert run([*command, "--quiet"]) == 2
    told = capsys.readouterr().out
    other = "dynamo" if engine == "torchscript" else "torchscript"
    assert "base: no layer could be compared: nothing in base tells" in told
    assert f"--engine {other} and localize that bundle; the outputs agree" in told
    assert told.rstrip().endswith("unmatched")
    assert "layers agree" not in told

    plant(root, zeroed_bias)
    assert run([*command, "--variant", "base", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "diverges"
    assert document["variants"][0]["summary"].endswith(f"--engine {other} and localize that bundle; the outputs differ")


def test_a_variant_that_lost_all_layers_is_told_from_a_base_that_has_them(plain_modules: str, tmp_path: Path) -> None:
    root, source = tmp_path / "copy", f"{plain_modules}:twins"
    export(source, root, recipe=Recipe(suite="quick"))

    def renamed_values(graph: onnx.GraphProto) -> None:
        outputs = {value.name for value in graph.output}
        made = {value for one in graph.node for value in one.output} - outputs
        for one in graph.node:
            one.input[:] = [f"{value}.other" if value in made else value for value in one.input]
            one.output[:] = [f"{value}.other" if value in made else value for value in one.output]

    plant(root, renamed_values, "model_optimized.onnx")
    found = localize(load_bundle(root), source, HubOptions(), tmp_path / "found")
    base, optimized = found.variants
    assert found.verdict == base.verdict == "agrees"
    assert [layer.module for layer in base.layers] == ["layer"]
    assert optimized.verdict == "unmatched"
    assert optimized.summary.endswith("base has them (--variant base); the outputs agree")


def test_a_format_that_shows_no_layers_does_not_agree_by_itself(checkpoint: Path, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    export(str(checkpoint), root, recipe=Recipe(suite="quick", variants=("base", "ort")))
    found = look(root, checkpoint, "ort")
    assert found.verdict == "unmatched"
    assert found.variants[0].summary.endswith("shows no layers (those of base: --variant base); the outputs agree")
    assert look(root, checkpoint).verdict == "agrees"
