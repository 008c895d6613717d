"""Single graphs of models of several, and of models with a cache, each against the whole checkpoint."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers
from torch import Tensor, nn

from onnxport.exporters import Recipe, export
from onnxport.exporters.checkpoint import load_checkpoint
from onnxport.exporters.cli.app import run
from onnxport.exporters.components import ON_REQUEST, requesting, split
from onnxport.exporters.engines.mask_functions import traceable_masks
from onnxport.exporters.errors import SignatureError, SourceError
from onnxport.exporters.file_verification import ask_source, verify_file
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.named_graph import named_graph
from onnxport.exporters.source import find_folder
from onnxport.verify.errors import VerificationError
from onnxport.verify.report import Report
from zoo import TinyModel
from zoo.decoders import ROWS as DECODERS
from zoo.encoder_decoders import write_text_model
from zoo.multimodal import ROWS as MULTIMODAL

QUICK = Recipe(suite="quick")
SEVERAL = ("encoder_model", "decoder_model", "decoder_with_past_model")
MERGED = "decoder_model_merged"
GENERATION = "text-generation"
GENERATES = Recipe(suite="quick", task=GENERATION)


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint, and beside it the graphs that were made of it."""
    folder = tmp_path_factory.mktemp("t5")
    (folder / "source").mkdir()
    write_text_model("t5", folder / "source")
    export(folder / "source", folder / "out", recipe=Recipe(merged=True, engine="torchscript"), verify=False)
    return folder


def verified(path: Path, source: Path, recipe: Recipe = QUICK, component: str | None = None) -> Report:
    return verify_file(ask_source(path, str(source), recipe, HubOptions(), component=component))


def failures(report: Report) -> list[str]:
    return [f"{check.id} {check.output}: {check.detail}" for check in report.checks if check.verdict == "fail"]


def details(report: Report, verdict: str) -> str:
    return "\n".join(check.detail for check in report.checks if check.verdict == verdict)


def weights(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from (one for one in graph.initializer if one.data_type == onnx.TensorProto.FLOAT and len(one.dims) > 1)


def with_fault(path: Path, target: Path) -> Path:
    """Changes the largest weight of a graph."""
    model = onnx.load(path)
    tensor = max(weights(model.graph), key=lambda one: len(one.raw_data))
    tensor.raw_data = (onnx.numpy_helper.to_array(tensor) * np.float32(1.5)).tobytes()
    onnx.save(model, target)
    return target


@pytest.mark.parametrize("name", [*SEVERAL, MERGED])
def test_a_file_is_compared_with_the_graph_that_it_is_named_after(t5: Path, tmp_path: Path, name: str) -> None:
    path = t5 / "out" / f"{name}.onnx"
    report = verified(path, t5 / "source")
    assert not failures(report)
    assert {(check.component, check.variant) for check in report.checks} == {(name, path.name)}
    assert {check.output for check in report.checks if check.id == "outputs.match" and check.verdict == "pass"} == {
        value.name for value in onnx.load(path).graph.output
    }
    failed = verified(with_fault(path, tmp_path / path.name), t5 / "source")
    assert {check.id for check in failed.checks if check.verdict == "fail"} == {"outputs.match"}


def test_all_that_is_asked_of_a_bundle_is_asked_of_a_step_with_a_cache(t5: Path) -> None:
    report = verified(t5 / "out" / "decoder_with_past_model.onnx", t5 / "source", Recipe())
    assert not failures(report)
    passed = {check.id for check in report.checks if check.verdict == "pass"}
    assert passed >= {"rows.independent", "padding.invariant", "iobinding.match", "levels.match", "inputs.rejected"}


def test_the_name_of_a_variant_is_no_part_of_the_name_of_a_graph(t5: Path, tmp_path: Path) -> None:
    for name in ("decoder_model_optimized.onnx", "decoder_model_quantized.onnx", "decoder_model_fp16.onnx"):
        assert named_graph(Path(name)) == "decoder_model"
    assert named_graph(Path("decoder_model_merged_quantized.onnx")) == MERGED
    assert named_graph(Path("folder/model.onnx")) == "model"
    path = t5 / "out" / "decoder_model_optimized.onnx"
    assert {check.component for check in verified(path, t5 / "source").checks} == {"decoder_model"}


def test_a_file_of_any_name_is_the_component_that_it_is_said_to_be(t5: Path, tmp_path: Path) -> None:
    path = tmp_path / "first-step.onnx"
    shutil.copy(t5 / "out" / "decoder_model.onnx", path)
    with pytest.raises(
        SourceError, match=r"encoder_model, decoder_model, decoder_with_past_model, and first-step\.onnx"
    ):
        verified(path, t5 / "source")
    assert not failures(verified(path, t5 / "source", component="decoder_model"))
    assert not failures(verified(t5 / "out" / f"{MERGED}.onnx", t5 / "source", component=MERGED))
    with pytest.raises(
        VerificationError, match=r"has the input encoder_attention_mask, which encoder_model of .* is not"
    ):
        verified(path, t5 / "source", component="encoder_model")
    with pytest.raises(SourceError, match="has no component 'decoder'; it has encoder_model, decoder_model"):
        verified(path, t5 / "source", component="decoder")


def test_a_merged_decoder_that_hands_no_cache_on_is_refused(t5: Path, tmp_path: Path) -> None:
    """Optimum puts empty constants there."""
    model = onnx.load(t5 / "out" / f"{MERGED}.onnx")
    (branch,) = (one.g for one in model.graph.node[0].attribute if one.name == "then_branch")
    position = [value.name for value in model.graph.output].index("present.1.encoder.key")
    (node,) = (node for node in branch.node if branch.output[position].name in node.output)
    empty = onnx.numpy_helper.from_array(np.empty((0, 4, 1, 12), np.float32))
    node.CopyFrom(onnx.helper.make_node("Constant", [], list(node.output), value=empty))
    path = tmp_path / f"{MERGED}.onnx"
    onnx.save(model, path)
    told = r"gives present\.1\.encoder\.key as a constant .* Verify decoder_model and decoder_with_past_model, which"
    with pytest.raises(VerificationError, match=told):
        verified(path, t5 / "source")


def test_half_of_a_merged_decoder_is_none(t5: Path, tmp_path: Path) -> None:
    shutil.copy(t5 / "out" / "decoder_model.onnx", tmp_path / "decoder_model_merged.onnx")
    told = "has no input use_cache_branch, by which .* give --component decoder_model or decoder_with_past_model"
    with pytest.raises(VerificationError, match=told):
        verified(tmp_path / "decoder_model_merged.onnx", t5 / "source")


def row(table: tuple[TinyModel, ...], architecture: str) -> TinyModel:
    return next(one for one in table if one.architecture == architecture)


@pytest.mark.parametrize("architecture", ["clip", "sam"])
def test_graphs_that_are_there_on_request_are_asked_for(tmp_path: Path, architecture: str) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    row(MULTIMODAL, architecture).write(source)
    bundle = export(source, out, recipe=Recipe(split=True, variants=("base",)), verify=False)
    assert len(bundle.manifest.components) == 2
    for name in bundle.manifest.components:
        path = out / f"{name}.onnx"
        report = verified(path, source)
        assert not failures(report)
        assert {check.component for check in report.checks} == {name}
        assert failures(verified(with_fault(path, tmp_path / path.name), source))
    shutil.copy(path, tmp_path / "half.onnx")
    with pytest.raises((VerificationError, SignatureError), match="--component"):
        verified(tmp_path / "half.onnx", source)
    assert not failures(verified(tmp_path / "half.onnx", source, component=name))


@pytest.mark.skipif(transformers.__version__.startswith("4."), reason="transformers 4 returns the embeddings alone")
@pytest.mark.parametrize(
    ("name", "model_class", "taken", "embedded"),
    [
        ("text_model", "CLIPTextModelWithProjection", "input_ids", "text_embeds"),
        ("vision_model", "CLIPVisionModelWithProjection", "pixel_values", "image_embeds"),
    ],
)
def test_the_towers_as_they_are_exported_by_themselves(
    tmp_path: Path, name: str, model_class: str, taken: str, embedded: str
) -> None:
    """With their last states beside the embedding, as Optimum writes them and transformers.js loads them."""
    source, path = tmp_path / "source", tmp_path / f"{name}.onnx"
    source.mkdir()
    row(MULTIMODAL, "clip").write(source)
    states = "last_hidden_state"
    model = getattr(transformers, model_class).from_pretrained(source, attn_implementation="eager").eval()
    example = torch.randint(4, 90, (2, 9)) if taken == "input_ids" else torch.rand(2, 3, 32, 32)
    axes = {0: "batch", 1: "sequence"} if taken == "input_ids" else {0: "batch"}

    class Tower(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, given: Tensor) -> tuple[Tensor, Tensor]:
            outputs = self.model(**{taken: given})
            return outputs[embedded], outputs[states]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Tower().eval(),
            (example,),
            str(path),
            dynamo=False,
            input_names=[taken],
            output_names=[embedded, states],
            dynamic_axes={taken: axes, embedded: {0: "batch"}, states: axes},
        )
    report = verified(path, source)
    assert not failures(report)
    assert {check.output for check in report.checks if check.id == "outputs.match" and check.verdict == "pass"} == {
        embedded,
        states,
    }
    assert failures(verified(with_fault(path, tmp_path / "copy.onnx"), source, component=name))


def test_the_name_of_a_graph_that_a_model_lacks_is_only_a_name(
    make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    source = make_checkpoint("bert")
    bundle = export(source, tmp_path / "out", recipe=Recipe(variants=("base",)), verify=False)
    for name in ON_REQUEST:
        path = tmp_path / f"{name}.onnx"
        shutil.copy(bundle.file("base"), path)
        assert {check.component for check in verified(path, source).checks} == {"model"}


def test_the_table_of_what_is_there_on_request(tmp_path: Path) -> None:
    writers = {"t5": lambda folder: write_text_model("t5", folder)}
    writers |= {name: row(MULTIMODAL, name).write for name in ("clip", "sam")}
    found: set[str] = set()
    for model_type, write in writers.items():
        folder = tmp_path / model_type
        folder.mkdir()
        write(folder)
        checkpoint = load_checkpoint(find_folder(str(folder), HubOptions()), Recipe(), HubOptions())
        there = set(split(checkpoint))
        for name in ON_REQUEST:
            found |= {name} & (set(split(requesting(checkpoint, name))) - there)
    assert found == set(ON_REQUEST)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint of a decoder, and beside it the graph that was made of it."""
    folder = tmp_path_factory.mktemp("llama")
    (folder / "source").mkdir()
    row(DECODERS, "llama").write(folder / "source")
    export(folder / "source", folder / "out", recipe=Recipe(task=GENERATION, variants=("base",)), verify=False)
    return folder


def test_a_decoder_with_a_cache(llama: Path, tmp_path: Path) -> None:
    path = llama / "out" / "model.onnx"
    assert not failures(verified(path, llama / "source", GENERATES))
    assert failures(verified(with_fault(path, tmp_path / "model.onnx"), llama / "source", GENERATES))


def test_a_cache_in_float16_has_values_that_both_sides_hold(llama: Path, tmp_path: Path) -> None:
    model = onnx.load(llama / "out" / "model.onnx")
    cached = [value for value in model.graph.input if value.name.startswith("past")]
    for value in cached:
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
        for node in model.graph.node:
            node.input[:] = [f"{name}.float" if name == value.name else name for name in node.input]
        cast = onnx.helper.make_node("Cast", [value.name], [f"{value.name}.float"], to=onnx.TensorProto.FLOAT)
        model.graph.node.insert(0, cast)
    onnx.save(model, tmp_path / "model.onnx")
    report = verified(tmp_path / "model.onnx", llama / "source", Recipe(task=GENERATION))
    assert not failures(report)
    assert "decode.3x9+1" in {check.case for check in report.checks}


class Prompt(nn.Module):
    """A decoder as it is exported without a cache."""

    def __init__(self, source: Path) -> None:
        super().__init__()
        self.model = transformers.AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager").eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits
        return logits


def test_a_decoder_without_a_cache_is_compared_on_prompts(llama: Path, tmp_path: Path) -> None:
    source = llama / "source"
    without, names = tmp_path / "prompt.onnx", ["input_ids", "attention_mask"]
    with warnings.catch_warnings(), traceable_masks():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Prompt(source).eval(),
            (torch.ones(2, 7, dtype=torch.int64), torch.ones(2, 7, dtype=torch.int64)),
            str(without),
            dynamo=False,
            input_names=names,
            output_names=["logits"],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in (*names, "logits")},
        )
    question = ask_source(without, str(source), Recipe(task=GENERATION), HubOptions())
    report = verify_file(question)
    assert not failures(report)
    assert "padding.left" in {check.case for check in report.checks}
    assert question.notes == (
        "the file has no input position_ids, past_key_values.0.key, past_key_values.0.value, past_key_values.1.key, "
        "past_key_values.1.value: the source was run without them, too",
        "the file has no output present.0.key, present.0.value, present.1.key, present.1.value: not compared",
    )
    assert failures(verified(with_fault(without, tmp_path / "other.onnx"), source, GENERATES))


class TestCommand:
    def test_a_fault_is_told_from_a_wrong_name(
        self, t5: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = t5 / "out" / "encoder_model.onnx"
        asked = ["--against", str(t5 / "source"), "--suite", "quick"]
        assert run(["verify", str(path), *asked]) == 0
        assert run(["verify", str(with_fault(path, tmp_path / path.name)), *asked]) == 1
        capsys.readouterr()
        assert run(["verify", str(path), *asked, "--component", "encodr_model"]) == 2
        assert "has no component 'encodr_model'; it has encoder_model" in " ".join(capsys.readouterr().err.split())

    def test_a_bundle_is_verified_whole(self, t5: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["verify", str(t5 / "out"), "--component", "encoder_model"]) == 2
        assert "a bundle is verified whole" in " ".join(capsys.readouterr().err.split())
