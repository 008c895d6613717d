"""Passes that really break a graph are told from those that do not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxport.exporters.bundle import load_bundle, seal
from onnxport.exporters.graph import FusionHints, Graph
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.localization.passes import Judge, blame_making, culprits
from onnxport.exporters.localization.search import localize
from onnxport.exporters.pipeline import export
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.variants import VariantBuilder
from onnxport.exporters.verification import subjects
from onnxport.verify.golden import load_golden
from onnxport.verify.runners import OrtRunner, Recorded
from onnxport.verify.tolerance import Tolerance

CheckpointMaker = Callable[..., Path]


@pytest.fixture(scope="module")
def checkpoint(make_checkpoint: CheckpointMaker) -> Path:
    return make_checkpoint("bert", "feature-extraction", tokenizer=False)


@pytest.fixture(scope="module")
def bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundles") / "tiny"
    export(str(checkpoint), out, recipe=Recipe(suite="quick", variants=("base",)))
    return out


@pytest.mark.parametrize(
    ("breaking", "found"),
    [
        ([{"c"}], ("c",)),
        ([{"b"}, {"d"}], ("b", "d")),
        ([{"a", "d"}], ("d",)),  # both are needed to break it: the later one is left out
        ([set()], None),
    ],
)
def test_culprits(breaking: list[set[str]], found: tuple[str, ...] | None) -> None:
    def agrees_without(off: frozenset[str]) -> bool:
        on = set("abcd") - off
        return not any(together <= on for together in breaking)

    assert culprits("abcd", agrees_without) == found


def test_a_pass_of_onnx_runtime_that_breaks_a_graph_while_it_is_loaded(
    bundle: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """GeluApproximation replaces erf by tanh: a real option that makes a real difference."""
    root = Path(shutil.copytree(bundle, tmp_path / "copy"))
    manifest = load_bundle(root).manifest
    component = manifest.components["model"]
    options = {"optimization.enable_gelu_approximation": "1"}
    entry = component.variants["base"].model_copy(update={"session_options": options})
    component = component.model_copy(update={"variants": {"base": entry}})
    seal(root, manifest.model_copy(update={"components": {"model": component}}))

    found = localize(load_bundle(root), str(checkpoint), HubOptions(), tmp_path / "found", rtol=1e-5, atol=1e-5)
    (base,) = found.variants
    assert base.blame is not None
    assert (base.blame.stage, base.blame.passes) == ("load", ("GeluApproximation",))
    assert base.first is not None
    assert base.layers[base.first].kind == "GELUActivation"
    assert base.session_options == options
    assert "optimization.enable_gelu_approximation" in (tmp_path / "found" / "base" / "reproduce.py").read_text()


def test_a_fusion_that_breaks_a_graph(bundle: Path, tmp_path: Path) -> None:
    """The fused Attention always divides by the root of the head size, whatever the graph scales with."""
    root = Path(shutil.copytree(bundle, tmp_path / "copy"))
    model = onnx.load(root / "model.onnx")
    # BERT multiplies in transformers 5 and divides in 4.
    scaling = ("attention/self/Mul", "attention/self/Div")
    scales = [node.input[1] for node in model.graph.node if node.name.endswith(scaling)]
    assert scales
    for node in model.graph.node:
        if node.output[0] in scales:
            node.attribute[0].t.CopyFrom(numpy_helper.from_array(np.float32(0.05)))
    onnx.save(model, root / "model.onnx")
    loaded = load_bundle(root)
    (base,) = subjects(root, loaded.manifest)
    cases, _ = load_golden(root / "verification" / "golden.safetensors")
    case = next(case for case in cases if case.name == "random.2x8")
    with OrtRunner(base.path) as runner:
        recorded = Recorded("base", {case.name: runner.run(case)})
    judge = Judge(recorded, case, Tolerance(rtol=1e-3, atol=1e-4), base.contract)
    work = tmp_path / "work"
    graph = Graph("model", base.path, base.contract, FusionHints("bert", 4, 32))
    blame = blame_making(judge, VariantBuilder(graph, work, work), "optimized")
    assert (blame.stage, blame.passes) == ("fusion", ("attention",))
