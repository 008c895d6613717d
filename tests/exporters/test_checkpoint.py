"""Loading checkpoints: signature from tokenizer and forward, task inference, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import save_file

from onnxport.exporters import export, load_bundle
from onnxport.exporters.checkpoint import load_checkpoint
from onnxport.exporters.cli.app import run
from onnxport.exporters.errors import OnnxportError, RecipeError, SourceError, TaskError
from onnxport.exporters.exportable import Exportable
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.loading import load as load_source
from onnxport.exporters.own_code import code_files
from onnxport.exporters.preprocessing import copy_files, load_tokenizer
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.signature import probe_contract
from onnxport.exporters.source import find_folder, is_factory

MakeCheckpoint = Callable[..., Path]


def load(folder: Path, **recipe: Any) -> Exportable:
    return load_source(str(folder), Recipe(**recipe), HubOptions()).component()


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


@pytest.mark.parametrize(
    "task",
    [
        "feature-extraction",
        "text-classification",
        "token-classification",
        "question-answering",
        "fill-mask",
        "multiple-choice",
    ],
)
def test_task_comes_from_the_architecture(make_checkpoint: MakeCheckpoint, task: str) -> None:
    assert load(make_checkpoint("bert", task)).source.task == task


def test_inputs_are_what_the_tokenizer_emits_and_forward_takes(make_checkpoint: MakeCheckpoint) -> None:
    assert list(load(make_checkpoint("bert")).inputs) == ["input_ids", "attention_mask", "token_type_ids"]
    assert list(load(make_checkpoint("bert", token_types=False)).inputs) == ["input_ids", "attention_mask"]
    # DistilBERT's forward knows no token types, whatever its tokenizer emits.
    assert list(load(make_checkpoint("distilbert")).inputs) == ["input_ids", "attention_mask"]


def test_missing_tokenizer_is_told_and_no_obstacle(make_checkpoint: MakeCheckpoint) -> None:
    exportable = load(make_checkpoint("bert", tokenizer=False))
    assert list(exportable.inputs) == ["input_ids", "attention_mask", "token_type_ids"]
    assert "no tokenizer" in exportable.notes[0]
    assert not any(case.name.startswith("text") for case in exportable.cases("standard"))


def test_positions_of_roberta_start_after_the_padding_index(make_checkpoint: MakeCheckpoint) -> None:
    exportable = load(make_checkpoint("roberta", tokenizer=False))
    assert exportable.axes["sequence"].max == 64  # a table of 66, padding_idx 1
    longest = max(case.inputs["input_ids"].shape[1] for case in exportable.cases("full"))
    assert longest == 64
    with torch.inference_mode():
        exportable.run({n: torch.ones(1, longest, dtype=torch.long) * 5 for n in exportable.inputs if n == "input_ids"})


def test_dtype_is_that_of_the_recipe_whatever_is_stored(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    from transformers import AutoModel

    folder = copytree(make_checkpoint("bert"), tmp_path / "half")
    AutoModel.from_pretrained(folder, dtype=torch.float16).save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float16"
    assert {p.dtype for p in load(folder).module.parameters()} == {torch.float32}
    assert {p.dtype for p in load(folder, dtype="float16").module.parameters()} == {torch.float16}


def test_no_module_is_in_train_mode(make_checkpoint: MakeCheckpoint) -> None:
    assert not any(module.training for module in load(make_checkpoint("bert")).module.modules())


def test_axes_can_be_renamed_and_fixed(make_checkpoint: MakeCheckpoint) -> None:
    exportable = load(make_checkpoint("bert"), axes={"input_ids": ("rows", "tokens")}, static={"tokens": 24})
    assert set(exportable.inputs.values()) == {("rows", "tokens")}
    assert exportable.axes["rows"].fixed is None
    assert exportable.axes["tokens"].fixed == 24
    assert {case.inputs["input_ids"].shape[1] for case in exportable.cases("standard")} == {24}


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"axes": {"input_idz": ("batch", "sequence")}}, "did you mean 'input_ids'"),
        ({"axes": {"input_ids": ("batch",)}}, "1 axes; it has 2"),
        ({"axes": {"input_ids": ("n", "n")}}, "the same name"),
        ({"axes": {"input_ids": ("a", "b"), "attention_mask": ("a", "c")}}, "both 'b' and 'c'"),
        ({"static": {"sequenze": 8}}, "did you mean 'sequence'"),
        ({"static": {"sequence": 65}}, "longer than the model's 64"),
    ],
)
def test_axes_that_do_not_exist(make_checkpoint: MakeCheckpoint, recipe: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load(make_checkpoint("bert"), **recipe)


def test_pooler_without_weights_is_left_out(make_checkpoint: MakeCheckpoint) -> None:
    # AutoModel of an MLM checkpoint has a pooler that transformers fills with random numbers.
    exportable = load(make_checkpoint("bert", "fill-mask"), task="feature-extraction")
    inputs = {name: torch.ones(1, 3, dtype=torch.long) for name in exportable.inputs}
    with torch.inference_mode():
        assert list(exportable.run(inputs)) == ["last_hidden_state"]
    assert "left out pooler_output" in exportable.notes[0]


def test_a_head_without_weights_is_refused(make_checkpoint: MakeCheckpoint) -> None:
    with pytest.raises(SourceError, match=r"no weights for classifier.bias.*logits.*random"):
        load(make_checkpoint("bert"), task="text-classification")


def test_tasks_that_do_not_fit(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    bert = make_checkpoint("bert")
    with pytest.raises(TaskError, match="did you mean 'fill-mask'"):
        load(bert, task="fil-mask")
    with pytest.raises(TaskError, match=r"needs sentence-transformers' modules\.json"):
        load(bert, task="sentence-similarity")
    folder = copytree(bert, tmp_path / "bare")
    edit_config(folder, architectures=None)
    with pytest.raises(
        TaskError, match=r"no architectures; give the task \(--task\), .*feature-extraction, text-classification"
    ):
        load(folder)
    assert load(folder, task="feature-extraction").source.task == "feature-extraction"
    edit_config(folder, architectures=["BertForPreTraining"])
    with pytest.raises(TaskError, match=r"is BertForPreTraining; give the task \(--task\)"):
        load(folder)


def truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def damage_header(path: Path) -> None:
    path.write_bytes(b"\xff" * 16 + path.read_bytes()[16:])


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda folder: truncate(folder / "model.safetensors"), "weights of .* cannot be loaded: SafetensorError"),
        (lambda folder: damage_header(folder / "model.safetensors"), "weights of .* cannot be loaded"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no weights: expected model.safetensors"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json of .* cannot be read"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "nothing"}'), "config.json of .* cannot"),
        (lambda folder: (folder / "config.json").unlink(), "is no checkpoint: no config.json"),
        (lambda folder: (folder / "generation_config.json").write_text("{"), "generation_config.json of .* cannot be"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer of .* cannot be loaded"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "no vocabulary"),
    ],
)
def test_broken_checkpoints(
    make_checkpoint: MakeCheckpoint, tmp_path: Path, break_it: Callable[[Path], object], message: str
) -> None:
    folder = copytree(make_checkpoint("bert"), tmp_path / "broken")
    break_it(folder)
    with pytest.raises(OnnxportError, match=message):
        load(folder)


@pytest.mark.parametrize("source", ["./gone", "/no/such/folder", "some/deep/path", "not a name"])
def test_missing_paths(source: str) -> None:
    with pytest.raises(SourceError, match="does not exist; expected a checkpoint folder, a Hub id"):
        find_folder(source, HubOptions(offline=True))


def test_a_file_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(SourceError, match="is a file"):
        find_folder(str(tmp_path / "model.bin"), HubOptions())


def test_what_counts_as_a_factory(tmp_path: Path) -> None:
    assert is_factory("package.module:make")
    assert not is_factory("org/name")
    assert not is_factory("./folder")


def test_files_are_copied_byte_for_byte(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    folder = make_checkpoint("bert")
    tokenizer = load_tokenizer(folder, trust_remote_code=False)
    copied = copy_files(folder, tokenizer, tmp_path)
    assert {"config.json", "tokenizer.json", "tokenizer_config.json"} <= set(copied)
    # transformers 4 saves more files of a tokenizer than 5 does: whatever is there goes along, but for the weights.
    assert copied == tuple(sorted(path.name for path in folder.iterdir() if path.suffix != ".safetensors"))
    assert all((tmp_path / name).read_bytes() == (folder / name).read_bytes() for name in copied)


def test_a_slow_tokenizer_gets_a_tokenizer_json(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    folder = copytree(make_checkpoint("bert", tokenizer=False), tmp_path / "slow")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "graph"]
    (folder / "vocab.txt").write_text("\n".join(words))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    tokenizer = load_tokenizer(folder, trust_remote_code=False)
    assert "tokenizer.json" in copy_files(folder, tokenizer, tmp_path / "out")
    light = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert light.encode("the graph").ids == tokenizer("the graph")["input_ids"] == [2, 5, 6, 3]


def test_a_tokenizer_of_another_model_is_refused(make_checkpoint: MakeCheckpoint) -> None:
    with pytest.raises(SourceError, match="the tokenizer does not belong to the model: it makes the id"):
        load(make_checkpoint("bert", vocab_size=20))


@pytest.mark.parametrize("model_type", ["bert", "mpnet", "deberta-v2"])
def test_a_model_for_very_short_texts(make_checkpoint: MakeCheckpoint, model_type: str) -> None:
    positions = 8 if model_type != "mpnet" else 10
    exportable = load(make_checkpoint(model_type, tokenizer=False, max_position_embeddings=positions))
    assert exportable.axes["sequence"].max == 8
    contract = probe_contract(exportable, 17)
    assert contract.outputs[0].shape == ("batch", "sequence", 32)


@pytest.mark.parametrize("static", [{"sequence": 1}, {"sequence": 1, "batch": 1}, {"sequence": 2}])
def test_a_static_length_below_the_special_tokens(make_checkpoint: MakeCheckpoint, static: dict[str, int]) -> None:
    cases = load(make_checkpoint("bert"), static=static).cases("standard")
    assert cases
    assert {case.inputs["input_ids"].shape[1] for case in cases} == {static["sequence"]}


def test_a_tokenizer_without_padding(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    folder = copytree(make_checkpoint("bert"), tmp_path / "unpadded")
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in config.items() if key != "pad_token"}))
    assert any(case.name == "text" for case in load(folder).cases("standard"))
    assert not any(case.name == "text" for case in load(folder, static={"sequence": 16}).cases("standard"))


def test_the_length_of_sentence_transformers_is_no_more_than_the_model_s(
    make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    folder = copytree(make_checkpoint("bert"), tmp_path / "st")
    stages = [("", "Transformer"), ("1_Pooling", "Pooling")]
    (folder / "modules.json").write_text(json.dumps([{"path": path, "type": kind} for path, kind in stages]))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 9999}')
    assert load(folder).preprocessing.max_length == 64


def test_code_of_a_checkpoint_is_not_run_unasked(
    make_checkpoint: MakeCheckpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copytree(make_checkpoint("bert"), tmp_path / "bert")
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    edit_config(folder, model_type="own", auto_map={"AutoConfig": "own.Config", "AutoModel": "own.Model"})
    assert run(["export", str(folder), str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert "brings Python code of its own" in told
    assert "pass --trust-remote-code" in told
    assert "Traceback" not in told
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "out").exists()


OWN_CODE = """
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput
from .own_layers import Scaled

class OwnConfig(PretrainedConfig):
    model_type = "own"

    def __init__(self, vocab_size=50, hidden_size=8, **kwargs):
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        super().__init__(**kwargs)

class OwnForSequenceClassification(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.embedding = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.layer = Scaled()
        self.classifier = torch.nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids, attention_mask):
        mask = attention_mask[..., None].to(self.embedding.weight.dtype)
        pooled = (self.layer(self.embedding(input_ids)) * mask).sum(1) / mask.sum(1)
        return SequenceClassifierOutput(logits=self.classifier(pooled))
"""
OWN_LAYERS = """
import torch

class Scaled(torch.nn.Module):
    def forward(self, states):
        return torch.tanh(states * 2.0)
"""


def test_a_model_of_the_checkpoints_own_code(
    make_checkpoint: MakeCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task is that of the class which auto_map names; its Python files are in the bundle, which loads with them."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = copytree(make_checkpoint("bert", "text-classification", token_types=False), tmp_path / "own")
    (folder / "modeling_own.py").write_text(OWN_CODE)
    (folder / "own_layers.py").write_text(OWN_LAYERS)
    (folder / "train.py").write_text("TOKEN = 'nobody else needs this'\n")
    classes = {
        "AutoConfig": "modeling_own.OwnConfig",
        "AutoModelForSequenceClassification": "modeling_own.OwnForSequenceClassification",
    }
    config = {"model_type": "own", "architectures": ["OwnForSequenceClassification"], "auto_map": classes}
    known = json.loads((folder / "config.json").read_text())["vocab_size"]
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": known, "num_labels": 3}))
    rng = np.random.default_rng(0)
    shapes = {"embedding.weight": (known, 8), "classifier.weight": (3, 8), "classifier.bias": (3,)}
    weights = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    out = tmp_path / "out"
    flags = ["--trust-remote-code", "--suite", "quick", "--variant", "base"]
    assert run(["export", str(folder), str(out), *flags]) == 0
    bundle = load_bundle(out)
    assert bundle.manifest.source.task == "text-classification"
    assert bundle.manifest.source.architecture == "OwnForSequenceClassification"
    code = [record.path for record in bundle.manifest.files if record.path.endswith(".py")]
    assert sorted(code) == ["modeling_own.py", "own_layers.py"]
    assert (out / "own_layers.py").read_bytes() == (folder / "own_layers.py").read_bytes()
    assert run(["verify", str(out)]) == 0
    assert transformers.AutoConfig.from_pretrained(out, trust_remote_code=True).vocab_size == known


def test_the_class_of_the_checkpoint_is_not_exchanged_for_one_of_transformers(
    make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    folder = copytree(make_checkpoint("bert", "text-classification"), tmp_path / "bert")
    (folder / "own.py").write_text("raise SystemExit\n")
    auto = "AutoModelForSequenceClassification"
    edit_config(folder, auto_map={auto: "own.OtherModel"}, architectures=["OtherModel"])
    with pytest.raises(SourceError, match=r"\(own.OtherModel\), which is not run .* pass --trust-remote-code"):
        load_checkpoint(find_folder(str(folder), HubOptions()), Recipe(), HubOptions())
    # Many checkpoints still bring what transformers has had for long.
    edit_config(folder, auto_map={auto: "own.BertForSequenceClassification"})
    loaded = load_checkpoint(find_folder(str(folder), HubOptions()), Recipe(task="text-classification"), HubOptions())
    assert "code of its own for BertForSequenceClassification, which was not run" in loaded.notes[0]


@pytest.mark.parametrize(
    ("auto_map", "told"),
    [
        (["own.Model"], "auto_map in config.json of bert is a list; expected an object"),
        ({"AutoModel": "../elsewhere/own.Model"}, "has '../elsewhere/own.Model' for AutoModel; expected a class in a"),
        ({"AutoModel": "own"}, "has 'own' for AutoModel; expected a class in a Python file"),
        ({"AutoModel": 3}, "has 3 for AutoModel; expected a class in a Python file"),
    ],
)
def test_names_of_code_that_cannot_be_read(
    make_checkpoint: MakeCheckpoint, tmp_path: Path, auto_map: object, told: str
) -> None:
    folder = copytree(make_checkpoint("bert"), tmp_path / "bert")
    edit_config(folder, auto_map=auto_map)
    for hub in (HubOptions(), HubOptions(trust_remote_code=True)):
        with pytest.raises(SourceError, match=re.escape(told)):
            load_checkpoint(find_folder(str(folder), hub), Recipe(), hub)


def test_code_outside_of_the_checkpoint_is_not_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    (folder / "inner").mkdir(parents=True)
    for path in (tmp_path / "outside.py", folder / "inner" / "deep.py", folder / "own.py", folder / "fast.py"):
        path.write_text("from ..outside import it\nfrom .missing import it\n")
    named = {"AutoConfig": "../outside.C", "AutoModel": "other/repository--own.M", "A": "inner/deep.M", "B": "own.B"}
    (folder / "config.json").write_text(json.dumps({"auto_map": named}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": [None, "fast.T"]}}))
    assert code_files(folder) == ["fast.py", "own.py"]


def test_code_that_was_not_trusted_stays_behind(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    folder = copytree(make_checkpoint("bert"), tmp_path / "bert")
    (folder / "own.py").write_text("raise SystemExit\n")
    bundle = export(folder, tmp_path / "out", recipe=Recipe(suite="quick", variants=("base",)))
    assert not list(bundle.path.glob("*.py"))


def test_weights_that_are_not_of_the_config(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    """transformers tells its log of them, which nobody sees, and points to it."""
    folder = copytree(make_checkpoint("bert"), tmp_path / "bert")
    edit_config(folder, intermediate_size=48)
    with pytest.raises(
        SourceError, match=r"layer\.0\.intermediate\.dense\.bias is .* in the checkpoint, expected \[48\]"
    ):
        load(folder)


def test_a_wrong_task_is_told_before_the_weights_are_read(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    folder = copytree(make_checkpoint("bert"), tmp_path / "bert")
    (folder / "model.safetensors").write_bytes(b"unreadable")
    with pytest.raises(TaskError):
        load(folder, task="fil-mask")
