"""Variants of tiny real exports, run by ONNX Runtime, compared with PyTorch at real tokens of LEFT-padded batches."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
import transformers

from int8_sums import EXACT_INT8_SUMS
from onnxport.exporters.errors import VariantError
from onnxport.exporters.graph import FusionHints, Graph, Variant
from onnxport.exporters.onnx_writer import split_large, write_model
from onnxport.exporters.variants import KINDS, VariantBuilder
from onnxport.exporters.variants.operators import operator_counts
from onnxport.verify.contract import GraphContract

BERT = {"vocab_size": 200, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
TEXT = ("input_ids", "attention_mask", "token_type_ids")
BERT_FUSIONS = {
    "com.microsoft:Attention": 2,
    "com.microsoft:BiasGelu": 2,
    "com.microsoft:EmbedLayerNormalization": 1,
    "com.microsoft:SkipLayerNormalization": 4,
}


@dataclass(frozen=True)
class Exported:
    """A module in eval mode and its graph, as an engine leaves them."""

    module: torch.nn.Module
    inputs: tuple[str, ...]
    graph: Graph

    def reference(self, feeds: dict[str, np.ndarray]) -> np.ndarray:
        with torch.inference_mode():
            out: np.ndarray = self.module(*(torch.from_numpy(feeds[name]) for name in self.inputs)).numpy()
        return out


class FirstOutput(torch.nn.Module):
    def __init__(self, model: torch.nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.model(**dict(zip(self.names, args, strict=True)), return_dict=True)[0]
        return out


def export(
    folder: Path, model: torch.nn.Module, inputs: tuple[str, ...], hints: FusionHints, sample: tuple[torch.Tensor, ...]
) -> Exported:
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    module = model.eval()
    axes = {name: {0: "batch"} if sample[0].dim() == 4 else {0: "batch", 1: "sequence"} for name in (*inputs, "out")}
    raw = folder / "raw.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            sample,
            str(raw),
            dynamo=False,
            opset_version=17,
            do_constant_folding=False,
            input_names=list(inputs),
            output_names=["out"],
            dynamic_axes=axes,
        )
    module.eval()
    proto = onnx.load(raw)
    work = folder / "work"
    work.mkdir()
    write_model(proto, split_large(proto), work / "model.onnx", external_data="always")
    raw.unlink()
    return Exported(module, inputs, Graph("model", work / "model.onnx", GraphContract(inputs=(), outputs=()), hints))


def export_text(folder: Path, model: Any, inputs: tuple[str, ...] = TEXT) -> Exported:
    sample = tuple(torch.ones(2, 9, dtype=torch.long) for _ in inputs)
    config = model.config
    hints = FusionHints(config.model_type, config.num_attention_heads, config.hidden_size)
    return export(folder, FirstOutput(model, inputs), inputs, hints, sample)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**BERT), add_pooling_layer=False)
    model.set_attn_implementation("eager")
    return export_text(tmp_path_factory.mktemp("bert"), model)


@pytest.fixture(scope="module")
def built(bert: Exported, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Variant]:
    """Every variant of BERT with the default options, made by one builder."""
    folder = tmp_path_factory.mktemp("built")
    builder = VariantBuilder(bert.graph, folder / "new" / "out", folder / "work")
    return {name: builder.build(name) for name in KINDS}


@pytest.fixture
def builder(bert: Exported, tmp_path: Path) -> Callable[..., VariantBuilder]:
    return lambda **options: VariantBuilder(bert.graph, tmp_path / "out", tmp_path / "work", **options)


def left_padded(inputs: tuple[str, ...], batch: int, length: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    ids = rng.integers(10, 200, (batch, length))
    mask = np.ones((batch, length), np.int64)
    for row in range(batch):
        padding = (2 * row) % max(1, length - 1)
        ids[row, :padding], mask[row, :padding] = 0, 0
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": rng.integers(0, 2, (batch, length))}
    return {name: feeds[name] for name in inputs}


def session(variant: Variant) -> ort.InferenceSession:
    return ort.InferenceSession(variant.path, providers=["CPUExecutionProvider"])


def differences(exported: Exported, variant: Variant) -> list[float]:
    """Returns the largest difference at real tokens, relative to the reference's RMS, per batch shape."""
    run = session(variant)
    names = [i.name for i in run.get_inputs()]
    worst = []
    for batch, length in ((2, 9), (3, 14), (1, 1), (4, 30)):
        feeds = left_padded(exported.inputs, batch, length)
        real = feeds["attention_mask"].astype(bool)
        assert batch == 1 or not real.all()
        expected = exported.reference(feeds)[real]
        actual = run.run(None, {n: feeds[n] for n in names})[0][real]
        worst.append(float(np.abs(expected - actual).max() / np.sqrt((expected**2).mean())))
    return worst


def as_onnx(variant: Variant) -> onnx.ModelProto:
    return onnx.load(variant.facts_path or variant.path, load_external_data=False)


ALLOWED = {"base": 1e-5, "optimized": 1e-5, "ort": 1e-5, "fp16": 1e-2, "int8": 0.15}


def agrees(exported: Exported, variant: Variant) -> bool:
    """Whether PyTorch is met; for int8 where this CPU can tell, which is what the variant's note says."""
    if variant.name == "int8" and not EXACT_INT8_SUMS:
        return any("sums may saturate" in note for note in variant.notes)
    return max(differences(exported, variant)) < ALLOWED[variant.name]


@pytest.mark.parametrize("name", KINDS)
def test_every_variant_of_bert_is_right_for_left_padded_batches(
    bert: Exported, built: dict[str, Variant], name: str
) -> None:
    variant = built[name]
    assert agrees(bert, variant)
    assert variant.name == name
    expected = {"ort": ["not reproducible"], "int8": ["weights have 8 bits"]}
    assert [note.split(":")[0] for note in variant.notes] == expected.get(name, [])
    assert variant.portable
    counts = operator_counts(as_onnx(variant))
    assert {key: counts[key] for key in variant.fusions} == variant.fusions


def test_the_comparison_above_sees_a_mask_that_is_lost(
    bert: Exported, built: dict[str, Variant], tmp_path: Path
) -> None:
    proto = onnx.load(built["optimized"].path)
    for node in proto.graph.node:
        if node.op_type == "Attention":
            node.input[3] = ""
    write_model(proto, [], tmp_path / "wrong.onnx")
    assert max(differences(bert, replace(built["optimized"], path=tmp_path / "wrong.onnx"))) > 0.05


def test_bert_fuses_completely(built: dict[str, Variant]) -> None:
    assert built["base"].fusions == {}
    assert built["optimized"].fusions == built["ort"].fusions == built["fp16"].fusions == BERT_FUSIONS
    assert built["int8"].fusions["com.microsoft:QAttention"] == 2
    assert "com.microsoft:QEmbedLayerNormalization" not in built["int8"].fusions


def test_file_names_precisions_sizes_and_session_options(built: dict[str, Variant]) -> None:
    assert {name: (v.path.name, v.precision) for name, v in built.items()} == {
        "base": ("model.onnx", "float32"),
        "optimized": ("model_optimized.onnx", "float32"),
        "ort": ("model.ort", "float32"),
        "fp16": ("model_fp16.onnx", "float16"),
        "int8": ("model_quantized.onnx", "int8"),
    }
    size = {name: variant.path.stat().st_size for name, variant in built.items()}
    assert size["fp16"] < 0.6 * size["base"]
    assert size["int8"] < 0.4 * size["base"]
    assert {p.name for p in built["base"].path.parent.iterdir()} == {v.path.name for v in built.values()}
    assert all(variant.session_options == {} for variant in built.values())


def test_only_used_domains_are_imported_and_nodes_are_sorted(built: dict[str, Variant]) -> None:
    for name, domains in (("base", {""}), ("optimized", {"", "com.microsoft"}), ("int8", {"", "com.microsoft"})):
        model = as_onnx(built[name])
        assert {entry.domain for entry in model.opset_import} == domains
        known = {i.name for i in model.graph.input} | {t.name for t in model.graph.initializer} | {""}
        for node in model.graph.node:
            assert set(node.input) <= known
            known |= set(node.output)


@pytest.mark.parametrize("name", ["base", "optimized", "fp16", "int8"])
def test_external_data_lies_beside_the_graph_under_its_name(
    bert: Exported, builder: Callable[..., VariantBuilder], name: str
) -> None:
    variant = builder(external_data="always").build(name)
    assert variant.external_data == variant.path.with_name(f"{variant.path.name}_data")
    tensors = [t for t in as_onnx(variant).graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    assert {e.value for t in tensors for e in t.external_data if e.key == "location"} == {variant.external_data.name}
    assert agrees(bert, variant)


@pytest.mark.parametrize("level", ["none", "basic"])
def test_a_lower_level_tells_the_consumer_to_stay_there(
    bert: Exported, builder: Callable[..., VariantBuilder], level: str
) -> None:
    variant = builder(level=level).build("optimized")
    assert (variant.level, variant.session_options) == (level, {"graph_optimization_level": level})
    assert max(differences(bert, variant)) < ALLOWED["optimized"]


def test_level_all_is_for_this_machine(builder: Callable[..., VariantBuilder]) -> None:
    assert not builder(level="all", target="this-machine").build("optimized").portable


def test_an_unknown_variant_is_refused_with_the_known_ones(builder: Callable[..., VariantBuilder]) -> None:
    with pytest.raises(VariantError, match="base, optimized, ort, fp16, int8"):
        builder().build("fp8")


def test_lower_precision_needs_float32(bert: Exported, tmp_path: Path) -> None:
    half = VariantBuilder(bert.graph, tmp_path / "half", tmp_path / "work").build("fp16")
    graph = Graph("model", half.path, bert.graph.contract, bert.graph.hints)
    with pytest.raises(VariantError, match="model is float16"):
        VariantBuilder(graph, tmp_path / "out", tmp_path / "work2").build("int8")


class Convolutions(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 16, 3), torch.nn.Conv2d(16, 32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(self.first(x).relu()).relu()
        return out


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm = torch.nn.Embedding(200, 16), torch.nn.LSTM(16, 24, batch_first=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.lstm(self.embedding(ids))[0]
        return out


class Bag(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.head = torch.nn.EmbeddingBag(200, 16, mode="mean"), torch.nn.Linear(16, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.bag(ids))
        return out


@pytest.mark.parametrize("module", [Convolutions, Recurrent, Bag])
def test_graphs_without_attention_go_through_and_say_that_nothing_fused(
    tmp_path: Path, module: Callable[[], torch.nn.Module]
) -> None:
    torch.manual_seed(0)
    sample = torch.randn(2, 3, 12, 12) if module is Convolutions else torch.randint(0, 200, (2, 7))
    exported = export(tmp_path, module(), ("x",), FusionHints(), (sample,))
    variants = VariantBuilder(exported.graph, tmp_path / "out", exported.graph.path.parent)
    feeds = {"x": sample.numpy()}
    expected = exported.reference(feeds)
    for name in ("optimized", "fp16", "int8"):
        variant = variants.build(name)
        assert any(note.startswith("no fusion matched") for note in variant.notes)
        actual = session(variant).run(None, feeds)[0]
        assert np.abs(actual - expected).max() < ALLOWED[name] * max(1.0, np.abs(expected).max()), name


def test_level_all_of_convolutions_is_tied_to_the_machine_and_extended_is_not(tmp_path: Path) -> None:
    torch.manual_seed(0)
    exported = export(tmp_path, Convolutions(), ("x",), FusionHints(), (torch.randn(2, 3, 12, 12),))
    work = exported.graph.path.parent
    tied = VariantBuilder(exported.graph, tmp_path / "a", work, level="all", target="this-machine").build("optimized")
    assert not tied.portable
    portable = VariantBuilder(exported.graph, tmp_path / "b", work).build("optimized")
    assert portable.portable
    assert not any("nchwc" in key for key in operator_counts(as_onnx(portable)))


def test_when_nothing_changes_it_is_said(tmp_path: Path) -> None:
    class Plain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

    exported = export(tmp_path, Plain(), ("x",), FusionHints(), (torch.randn(2, 3, 4, 4),))
    variants = VariantBuilder(exported.graph, tmp_path / "out", exported.graph.path.parent)
    assert any(note.startswith("nothing changed") for note in variants.build("optimized").notes)
    assert any(note.startswith("nothing changed") for note in variants.build("int8").notes)


def test_attention_of_a_decoder_is_not_fused_as_if_it_were_an_encoder(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(**BERT, is_decoder=True, use_cache=False)
    model = transformers.BertModel(config, add_pooling_layer=False)
    model.set_attn_implementation("eager")
    exported = export_text(tmp_path, model)
    variant = VariantBuilder(exported.graph, tmp_path / "out", exported.graph.path.parent).build("optimized")
    assert max(differences(exported, variant)) < ALLOWED["optimized"]
    assert "com.microsoft:Attention" not in variant.fusions
    assert any("relates positions" in note for note in variant.notes)


def test_an_unknown_model_type_has_its_layers_fused_and_its_attention_left(bert: Exported, tmp_path: Path) -> None:
    graph = Graph("model", bert.graph.path, bert.graph.contract, FusionHints("mystery", 4, 64))
    variant = VariantBuilder(graph, tmp_path / "out", tmp_path / "work").build("optimized")
    assert variant.fusions["com.microsoft:SkipLayerNormalization"] == 4
    assert "com.microsoft:Attention" not in variant.fusions
    assert any("'mystery' is not one whose attention is known" in note for note in variant.notes)
    assert max(differences(bert, variant)) < ALLOWED["optimized"]


@pytest.mark.skipif(
    transformers.__version__.startswith("4."), reason="in graphs of transformers 4, the number of heads can be read"
)
def test_hints_that_do_not_fit_leave_attention_unfused_and_it_is_said(bert: Exported, tmp_path: Path) -> None:
    graph = Graph("model", bert.graph.path, bert.graph.contract, FusionHints("bert", 5, 64))
    variant = VariantBuilder(graph, tmp_path / "out", tmp_path / "work").build("optimized")
    assert max(differences(bert, variant)) < ALLOWED["optimized"]
    assert "com.microsoft:Attention" not in variant.fusions
    assert any("nothing matched" in note and "0 heads" in note for note in variant.notes)


def test_tied_weights_stay_one_copy(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(transformers.BertConfig(**{**BERT, "vocab_size": 4000}))
    model.set_attn_implementation("eager")
    exported = export_text(tmp_path, model)
    embedding_bytes = 4000 * 64 * 4
    variants = VariantBuilder(exported.graph, tmp_path / "out", exported.graph.path.parent)
    built = {name: variants.build(name) for name in ("base", "optimized", "int8")}
    size = {name: variant.path.stat().st_size for name, variant in built.items()}

    assert all(agrees(exported, variant) for variant in built.values())
    assert size["base"] < 2 * embedding_bytes
    assert size["optimized"] < size["base"] * 1.05
    assert built["optimized"].fusions["com.microsoft:FusedMatMul"] == 1
    assert "com.microsoft:FusedMatMul" not in built["int8"].fusions
    assert size["int8"] < 0.6 * size["optimized"]


def test_layers_that_share_weights_share_the_merged_ones(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.AlbertConfig(**{**BERT, "num_hidden_layers": 5}, embedding_size=32, hidden_act="gelu")
    model = transformers.AlbertModel(config, add_pooling_layer=False)
    model.set_attn_implementation("eager")
    exported = export_text(tmp_path, model)
    variants = VariantBuilder(exported.graph, tmp_path / "out", exported.graph.path.parent)
    base, optimized = variants.build("base"), variants.build("optimized")
    assert optimized.fusions["com.microsoft:Attention"] >= 4
    merged_bytes = 64 * 3 * 64 * 4
    assert optimized.path.stat().st_size < base.path.stat().st_size + 1.5 * merged_bytes
    assert max(differences(exported, optimized)) < ALLOWED["optimized"]


def test_a_second_process_makes_the_same_bytes_and_stays_clean(
    bert: Exported, built: dict[str, Variant], tmp_path: Path
) -> None:
    source = sorted(p.name for p in bert.graph.path.parent.iterdir())
    script = f"""
import logging, sys
from pathlib import Path
from onnxport.exporters.graph import FusionHints, Graph
from onnxport.exporters.variants import KINDS, VariantBuilder
from onnxport.verify.contract import GraphContract
path, handlers = list(sys.path), list(logging.getLogger().handlers)
graph = Graph("model", Path({str(bert.graph.path)!r}), GraphContract(inputs=(), outputs=()), FusionHints("bert", 4, 64))
builder = VariantBuilder(graph, Path({str(tmp_path / "out")!r}), Path({str(tmp_path / "work")!r}))
for name in KINDS: builder.build(name)
assert sys.path == path
assert logging.getLogger().handlers == handlers
assert not [m for m in sys.modules if m in ("torch", "transformers") or m.startswith("onnxruntime.transformers")]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for variant in built.values():
        data = (tmp_path / "out" / variant.path.name).read_bytes()
        assert data == variant.path.read_bytes() or variant.name == "ort", variant.name
        assert b"/work" not in data, variant.name
        assert str(tmp_path).encode() not in data, variant.name
    assert sorted(p.name for p in bert.graph.path.parent.iterdir()) == source


def test_a_fusion_that_breaks_is_an_error_that_says_what_works(bert: Exported, tmp_path: Path) -> None:
    work = tmp_path / "work"
    shutil.copytree(bert.graph.path.parent, work)
    os.truncate(work / "model.onnx_data", 50_000)
    variants = VariantBuilder(replace(bert.graph, path=work / "model.onnx"), tmp_path / "out", work)
    with pytest.raises(VariantError, match=r"(?s)broke while fusing this graph as 'bert'.*--variant base"):
        variants.build("optimized")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_os_error(builder: Callable[..., VariantBuilder], tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file, where a folder should be")
    with pytest.raises(OSError, match="out"):
        builder().build("base")
