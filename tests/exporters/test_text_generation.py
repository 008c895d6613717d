"""Decoders with a cache: one graph for the prompt and every step, held against transformers' own generation."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers
from onnx import TensorProto, helper, numpy_helper

from onnxport.exporters import Bundle, Recipe, export
from onnxport.exporters.checkpoint import load_checkpoint
from onnxport.exporters.cli.app import run
from onnxport.exporters.errors import BundleError, SignatureError
from onnxport.exporters.generation import loops_of, recorder_of
from onnxport.exporters.generation.check import check_generation
from onnxport.exporters.generation.evidence import record_evidence, stored_evidence
from onnxport.exporters.generation.generation import CASE, Generation
from onnxport.exporters.generation.greedy import generate_greedily
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.inputs.decoder import DecoderAxes, DecoderInputs
from onnxport.exporters.inputs.text import TextInputs
from onnxport.exporters.reference import answers_of_source
from onnxport.exporters.source import find_folder
from onnxport.exporters.verification import check_subject, subjects, verify_bundle
from onnxport.verify.contract import GraphContract, TensorSpec
from onnxport.verify.golden import load_golden
from onnxport.verify.relations import RELATIONS
from onnxport.verify.report import CheckResult
from onnxport.verify.subject import Subject
from onnxport.verify.tolerance import Statistics, Tolerance
from onnxport.verify.verification import verify_subject
from zoo import randomise
from zoo.decoders import ROWS
from zoo.encoder_decoders import write_text_model
from zoo.tokenizer import VOCABULARY

BASE = Recipe(variants=("base",))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def write(architecture: str) -> Path:
        if architecture not in made:
            folder = tmp_path_factory.mktemp(architecture)
            next(row for row in ROWS if row.architecture == architecture).write(folder)
            made[architecture] = folder
        return made[architecture]

    return write


@pytest.fixture(scope="module")
def bundle(checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bundle]:
    made: dict[str, Bundle] = {}

    def make(architecture: str) -> Bundle:
        if architecture not in made:
            out = tmp_path_factory.mktemp("bundles") / architecture
            recipe = Recipe() if architecture == "llama" else BASE
            made[architecture] = export(checkpoint(architecture), out, recipe=recipe)
        return made[architecture]

    return make


def generated(checks: tuple[CheckResult, ...]) -> dict[str | None, str]:
    return {check.variant: check.verdict for check in checks if check.case == CASE}


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "mistral", "bloom"])
def test_a_decoder_becomes_one_graph_that_generates_what_the_model_does(
    bundle: Callable[[str], Bundle], architecture: str
) -> None:
    made = bundle(architecture)
    assert made.manifest.source.task == "text-generation"
    assert made.manifest.verification.verdict == "pass"
    component = made.component()
    heads = 2 if architecture in ("llama", "mistral") else 4
    shapes = {spec.name: spec.shape for spec in (*component.inputs, *component.outputs)}
    assert shapes["attention_mask"] == ("batch", "past_sequence+sequence")
    assert shapes["past_key_values.1.value"] == ("batch", heads, "past_sequence", 8)
    assert shapes["present.1.value"] == ("batch", heads, "past_sequence+sequence", 8)
    assert shapes["logits"] == ("batch", "sequence", len(VOCABULARY))
    assert ("position_ids" in shapes) == (architecture != "bloom")
    assert component.axes["past_sequence"].min == 0
    assert {0, 1, 9} <= set(component.axes["past_sequence"].proven)
    report = made.report()
    assert report is not None
    variants = ["base", "optimized"] if architecture == "llama" else ["base"]
    assert generated(report.checks) == dict.fromkeys(variants, "pass")
    (first, *_) = [check for check in report.checks if check.case == CASE]
    assert (first.id, first.argmax_agreement, first.compared) == ("outputs.match", 1.0, 64)


def test_a_window_is_passed_by_cases_and_by_generation(bundle: Callable[[str], Bundle]) -> None:
    report = bundle("mistral").report()
    assert report is not None
    cases = {check.case for check in report.checks if check.id == "outputs.match"}
    assert {"window.prefill", "window.decode", "window.chunk"} <= cases
    evidence = stored_evidence(bundle("mistral").path, bundle("mistral").manifest.verification)
    assert evidence.generation is not None
    assert 12 in evidence.generation.prompt["attention_mask"].sum(axis=1)


def test_a_graph_that_is_right_below_the_window_only_fails(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    endless = shutil.copytree(checkpoint("mistral"), tmp_path / "endless")
    config = json.loads((endless / "config.json").read_text())
    (endless / "config.json").write_text(json.dumps({**config, "sliding_window": None}))
    without_window = export(endless, tmp_path / "out", recipe=BASE.model_copy(update={"suite": "quick"}))
    answers = answers_of_source(without_window, str(checkpoint("mistral")), HubOptions(), "standard")
    report = verify_bundle(without_window, recordings=answers.recordings, generation=answers.generation, suite="quick")
    verdicts = {check.case: check.verdict for check in report.checks if check.output == "logits" and check.case}
    assert {verdicts[f"window.{kind}"] for kind in ("prefill", "decode", "chunk")} == {"fail"}
    assert {verdicts[name] for name in ("prefill.2x8", "decode.3x9+1", "padding.left")} == {"pass"}


def test_a_window_that_no_case_can_pass_bounds_what_is_promised() -> None:
    text = TextInputs(("input_ids",), ("batch", "sequence"), 64, 0, 0, max_length=None, longest=32, static={})
    names = {f"past_key_values.0.{kind}": (8, 128) for kind in ("key", "value")}
    for window, promised in ((16, None), (200_000, 200_000)):  # 1.6 GB a row
        maker = DecoderInputs(
            text, DecoderAxes(), names, True, np.dtype("float32"), window, {}, lambda inputs: pytest.fail("no model")
        )
        assert maker.axes["sequence"].max == promised
        assert any(f"promised for up to {window} positions" in note for note in maker.notes) == (promised is not None)


def test_verify_replays_the_generation_without_torch(bundle: Callable[[str], Bundle]) -> None:
    code = (
        "import sys; from onnxport.exporters import load_bundle; from onnxport.exporters.verification import *\n"
        f"report = verify_bundle(load_bundle({str(bundle('llama').path)!r}))\n"
        f"print(report.verdict, [c.variant for c in report.checks if c.case == {CASE!r} and c.id == 'golden.match'])\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.split("\n")[0] == "pass ['base', 'optimized']"


def test_a_damaged_generation_fails(bundle: Callable[[str], Bundle], tmp_path: Path) -> None:
    copy = shutil.copytree(bundle("gpt2").path, tmp_path / "copy")
    file = copy / "verification" / "generation.safetensors"
    file.write_bytes(file.read_bytes()[:-40] + b"\0" * 40)
    evidence = stored_evidence(copy, bundle("gpt2").manifest.verification)
    assert [(check.id, check.verdict) for check in evidence.checks] == [("golden.match", "fail")]


def _through(model: onnx.ModelProto, name: str, operator: str, constant: np.ndarray) -> None:
    """What reads the input reads operator(input, constant) instead."""
    graph = model.graph
    for node in graph.node:
        node.input[:] = [f"{name}.altered" if value == name else value for value in node.input]
    graph.initializer.append(numpy_helper.from_array(constant, f"{name}.constant"))
    graph.node.insert(0, helper.make_node(operator, [name, f"{name}.constant"], [f"{name}.altered"]))


def _positions_baked(model: onnx.ModelProto) -> None:
    _through(model, "position_ids", "Mul", np.array(0, dtype=np.int64))


def _past_ignored(model: onnx.ModelProto) -> None:
    for layer in (0, 1):
        for kind in ("key", "value"):
            _through(model, f"past_key_values.{layer}.{kind}", "Mul", np.array(0, dtype=np.float32))


def _key_and_value_exchanged(model: onnx.ModelProto) -> None:
    names = {"past_key_values.0.key": "past_key_values.0.value", "past_key_values.0.value": "past_key_values.0.key"}
    for node in model.graph.node:
        node.input[:] = [names.get(value, value) for value in node.input]


def _mask_ignored(model: onnx.ModelProto) -> None:
    _through(model, "attention_mask", "Max", np.array(1, dtype=np.int64))


@pytest.mark.parametrize("fault", [_positions_baked, _past_ignored, _key_and_value_exchanged, _mask_ignored])
def test_a_wrong_graph_is_seen_by_the_cases_and_by_the_generation(
    bundle: Callable[[str], Bundle], tmp_path: Path, fault: Callable[[onnx.ModelProto], None]
) -> None:
    made = bundle("llama")
    (subject,) = subjects(made.path, made.manifest, ["base"])
    model = onnx.load(subject.path)
    fault(model)
    onnx.save(model, tmp_path / "wrong.onnx")
    wrong = replace(subject, path=tmp_path / "wrong.onnx")
    generation = stored_evidence(made.path, made.manifest.verification).generation
    assert generation is not None
    (result,) = check_generation([wrong], ["model"], generation)
    assert (result.id, result.case, result.verdict) == ("outputs.match", CASE, "fail")
    assert result.argmax_agreement is not None
    assert result.argmax_agreement < 1
    golden = made.component().golden
    assert golden is not None
    cases, recorded = load_golden(made.path / golden)
    checks = verify_subject(wrong, recorded, cases, suite="quick")
    assert any(check.id == "outputs.match" and check.verdict == "fail" for check in checks)


def _positions_by_index(model: onnx.ModelProto) -> None:
    """Positions as an export has them whose mask was all ones: by their place, padding counted."""
    graph = model.graph
    for node in graph.node:
        node.input[:] = ["positions.by_index" if value == "position_ids" else value for value in node.input]
    constants = {"one": np.array(1), "axis": np.array([1])}
    graph.initializer.extend(numpy_helper.from_array(value, f"positions.{name}") for name, value in constants.items())
    made = [
        ("Max", ["attention_mask", "positions.one"], "ones", {}),
        ("CumSum", ["positions.ones", "positions.one"], "all", {"exclusive": 1}),
        ("Shape", ["input_ids"], "new", {"start": 1}),
        ("Neg", ["positions.new"], "start", {}),
        ("Shape", ["attention_mask"], "end", {"start": 1}),
        ("Slice", ["positions.all", "positions.start", "positions.end", "positions.axis"], "by_index", {}),
    ]
    for at, (operator, inputs, output, attributes) in enumerate(made):
        graph.node.insert(at, helper.make_node(operator, inputs, [f"positions.{output}"], **attributes))


@pytest.mark.parametrize(
    ("fault", "broken"),
    [(None, set()), (_mask_ignored, {"padding.left", "padding.content"}), (_positions_by_index, {"padding.left"})],
)
def test_more_padding_changes_nothing_in_the_prompt_nor_in_the_cache(
    bundle: Callable[[str], Bundle],
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
    fault: Callable[[onnx.ModelProto], None] | None,
    broken: set[str],
) -> None:
    made = bundle("gpt2")
    recording = answers_of_source(made, str(checkpoint("gpt2")), HubOptions(), "standard").recordings["model"]
    assert recording.invariants is not None
    assert {name: one.held for name, one in recording.invariants.items()} == dict.fromkeys(RELATIONS, True)
    (subject,) = subjects(made.path, made.manifest, ["base"])
    model = onnx.load(subject.path)
    if fault is not None:
        fault(model)
    onnx.save(model, tmp_path / "graph.onnx")
    checks = check_subject(replace(subject, path=tmp_path / "graph.onnx"), recording, "standard")
    verdicts = {c.detail.split(":")[0]: c.verdict for c in checks if c.id == "padding.invariant"}
    assert verdicts == {
        name: "fail" if name in broken else "pass" for name in ("padding.right", "padding.left", "padding.content")
    }


def _table_subject(path: Path, table: np.ndarray, **fields: object) -> Subject:
    """A graph whose logits are the row of a table that the token names, with a cache it does not read."""
    size = len(table)
    past = helper.make_tensor_value_info("past_key_values.0.key", TensorProto.FLOAT, ["batch", 1, "past_sequence", 1])
    present = helper.make_tensor_value_info("present.0.key", TensorProto.FLOAT, ["batch", 1, "past_sequence", 1])
    ids, mask = (
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", axis])
        for name, axis in (("input_ids", "sequence"), ("attention_mask", "total"))
    )
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", size])
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["logits"]),
        helper.make_node("Identity", ["past_key_values.0.key"], ["present.0.key"]),
    ]
    weights = [numpy_helper.from_array(table.astype(np.float32), "table")]
    graph = helper.make_graph(nodes, "table", [ids, mask, past], [logits, present], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    inputs = (
        TensorSpec(name="input_ids", dtype="int64", shape=("batch", "sequence")),
        TensorSpec(name="attention_mask", dtype="int64", shape=("batch", "past_sequence+sequence")),
        TensorSpec(name="past_key_values.0.key", dtype="float32", shape=("batch", 1, "past_sequence", 1)),
    )
    criterion = fields.get("criterion", Tolerance(rtol=0, atol=0.1))
    return Subject("model", "base", path, GraphContract(inputs=inputs, outputs=()), criterion)  # type: ignore[arg-type]


def _generation(tokens: list[int], gap: float) -> Generation:
    """One row that starts with token 0; 2 comes second everywhere, `gap` behind."""
    steps = len(tokens)
    prompt = {name: np.full((1, 1), value, dtype=np.int64) for name, value in (("input_ids", 0), ("attention_mask", 1))}
    top = np.array([[[token, 2] for token in tokens]], dtype=np.int64)
    logits = np.tile(np.array([5.0, 5.0 - gap], dtype=np.float32), (1, steps, 1))
    return Generation("decoder", prompt, np.array([tokens], dtype=np.int64), top, logits)


@pytest.mark.parametrize(
    ("gap", "second", "verdict"),
    [
        (0.15, 2, "pass"),  # both logits may be 0.1 off
        (0.25, 2, "fail"),
        (0.15, 3, "fail"),  # no candidate of the model's
    ],
)
def test_another_token_passes_only_where_the_model_saw_a_tie(
    tmp_path: Path, gap: float, second: int, verdict: str
) -> None:
    # 0 is followed by 1 as it should be, 1 by `second` instead of 0.
    table = np.eye(4)[[1, second, 0, 0]]
    subject = _table_subject(tmp_path / "table.onnx", table)
    (result,) = check_generation([subject], ["model"], _generation([1, 0], gap))
    assert (result.verdict, result.argmax_agreement) == (verdict, 0.5)


def test_a_graph_that_does_not_load_fails_and_no_path_is_told(tmp_path: Path) -> None:
    subject = _table_subject(tmp_path / "table.onnx", np.eye(4))
    subject.path.write_bytes(b"no graph")
    (result,) = check_generation([subject], ["model"], _generation([1, 0], 9.0))
    assert (result.verdict, "table.onnx" in result.detail) == ("fail", True)
    assert str(tmp_path) not in result.detail


def test_lower_precision_is_judged_by_the_share_of_equal_tokens(tmp_path: Path) -> None:
    for least, verdict in ((0.5, "pass"), (0.6, "fail")):
        criterion = Statistics(min_cosine=0.9, min_argmax_agreement=least)
        subject = _table_subject(tmp_path / "table.onnx", np.eye(4)[[1, 3, 0, 0]], criterion=criterion)
        (result,) = check_generation([subject], ["model"], _generation([1, 0], 9.0))
        assert result.verdict == verdict


def test_one_token_over_and_over_shows_nothing(tmp_path: Path) -> None:
    subject = _table_subject(tmp_path / "table.onnx", np.eye(4)[[0, 0, 0, 0]])
    (result,) = check_generation([subject], ["model"], _generation([0, 0], 9.0))
    assert result.verdict == "skip"
    assert "token 0 only" in result.detail
    wrong = _table_subject(tmp_path / "wrong.onnx", np.eye(4)[[3, 0, 0, 0]])
    (result,) = check_generation([wrong], ["model"], _generation([0, 0], 9.0))
    assert result.verdict == "fail"


def test_nan_among_the_logits_fails_although_the_largest_is_right(tmp_path: Path) -> None:
    table = np.eye(4)[[1, 0, 0, 0]]
    for odd, verdict in ((-np.inf, "pass"), (np.nan, "fail")):  # a token may be forbidden
        table[1, 3] = odd
        (result,) = check_generation(
            [_table_subject(tmp_path / "table.onnx", table)], ["model"], _generation([1, 0], 9.0)
        )
        assert result.verdict == verdict


def test_a_loop_of_another_release_is_named() -> None:
    with pytest.raises(BundleError, match="generation loop 'beam'"):
        loops_of("beam", ["model"])


def test_a_graph_for_one_token_at_a_time_generates_too(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    recipe = BASE.model_copy(update={"static": {"new": 1, "rows": 2}, "axes": {"input_ids": ("rows", "new")}})
    made = export(checkpoint("gpt2"), tmp_path / "out", recipe=recipe)
    report = made.report()
    assert report is not None
    assert report.verdict == "pass"
    assert generated(report.checks) == {"base": "pass"}
    (mask,) = (spec for spec in onnx.load(made.path / "model.onnx").graph.input if spec.name == "attention_mask")
    assert [dim.dim_param or dim.dim_value for dim in mask.type.tensor_type.shape.dim] == [2, "past_sequence+1"]


def test_fixed_sizes_without_room_for_a_prompt_skip_the_generation(
    checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    recipe = BASE.model_copy(update={"static": {"past_sequence": 6}})
    report = export(checkpoint("gpt2"), tmp_path / "out", recipe=recipe).report()
    assert report is not None
    (skipped,) = [check for check in report.checks if check.case == CASE]
    assert skipped.verdict == "skip"
    assert "has a fixed size" in skipped.detail


def _recorded(folder: Path) -> Generation:
    recorder = recorder_of(load_checkpoint(find_folder(str(folder), HubOptions()), Recipe(), HubOptions()))
    assert recorder is not None
    return recorder()


def test_few_positions_are_generated_at_as_far_as_they_reach(tmp_path: Path) -> None:
    """Half of a decoder's are for the prompt; of an encoder-decoder's, all but the first."""
    for kind, positions, steps in (("gpt2", 14, 7), ("bart", 8, 7)):
        generation = _recorded(_few_positions(kind, positions, tmp_path / kind))
        assert generation.steps == generation.top_ids.shape[1] == steps


def _few_positions(kind: str, positions: int, folder: Path) -> Path:
    folder.mkdir()
    if kind == "bart":
        write_text_model("bart", folder, max_position_embeddings=positions)
        return folder
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": positions, "vocab_size": len(VOCABULARY)}
    config = transformers.GPT2Config(**sizes, pad_token_id=0, bos_token_id=2, eos_token_id=3)
    randomise(transformers.GPT2LMHeadModel(config), seed=2).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("kind", "positions"), [("gpt2", 8), ("gpt2", 5), ("bart", 5)])
def test_few_positions_are_traced_within(kind: str, positions: int, tmp_path: Path) -> None:
    bundle = export(
        _few_positions(kind, positions, tmp_path / kind), tmp_path / "out", recipe=Recipe(variants=("base",))
    )
    assert bundle.manifest.verification.verdict == "pass"
    name, axes = ("model", ("sequence", "past_sequence"))
    if kind == "bart":
        name, axes = ("decoder_with_past_model", ("decoder_sequence", "past_decoder_sequence"))
    assert [bundle.component(name).axes[axis].fixed for axis in axes] == [None, None]
    assert [bundle.component(name).axes[axis].max for axis in axes] == [positions, positions - 1]


@pytest.mark.parametrize("kind", ["gpt2", "bart"])
def test_too_few_positions_for_a_step_with_a_cache(kind: str, tmp_path: Path) -> None:
    source = _few_positions(kind, 3, tmp_path / kind)
    with pytest.raises(SignatureError, match=r"takes 3 tokens at most \(the length of its position table.*has 5: "):
        export(source, tmp_path / "out", recipe=Recipe(variants=("base",)))
    assert not (tmp_path / "out").exists()


def test_no_position_for_a_token_is_a_skip_and_not_a_pass_over_nothing(checkpoint: Callable[[str], Path]) -> None:
    model = transformers.GPT2LMHeadModel.from_pretrained(checkpoint("gpt2"))
    prompt = {"input_ids": np.array([[2, 5]])}

    def generate() -> Generation:
        given = {name: torch.from_numpy(array) for name, array in prompt.items()}
        return generate_greedily(model, "decoder", given, prompt=prompt, steps=0)

    evidence = record_evidence(generate, "standard")
    assert evidence.generation is None
    assert [(check.verdict, check.case) for check in evidence.checks] == [("skip", CASE)]
    assert "no position left for a token after the prompt" in evidence.checks[0].detail


def test_a_decoder_that_keeps_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = transformers.AutoConfig.for_model(
        "mamba", vocab_size=64, hidden_size=16, state_size=4, num_hidden_layers=2
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "mamba")
    with pytest.raises(SignatureError, match=r"cache.*--task feature-extraction"):
        export(tmp_path / "mamba", tmp_path / "out")
    assert run(["export", str(tmp_path / "mamba"), str(tmp_path / "out")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_decoder_that_serves_as_an_encoder_has_no_cache(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    recipe = Recipe(task="feature-extraction", variants=("base",), suite="quick")
    made = export(checkpoint("llama"), tmp_path / "out", recipe=recipe)
    component = made.component()
    assert [spec.name for spec in component.inputs] == ["input_ids", "attention_mask"]
    assert [spec.name for spec in component.outputs] == ["last_hidden_state"]


def test_the_loop_of_the_documentation_generates(
    bundle: Callable[[str], Bundle], checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "text-generation.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(bundle("llama").path.parent)
    names: dict[str, object] = {}
    exec(compile(block, "docs/text-generation.md", "exec"), names)
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint("llama")).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint("llama"))
    given = tokenizer(names["texts"], return_tensors="pt", padding=True)
    expected = model.generate(**given, do_sample=False, max_new_tokens=20, eos_token_id=None, pad_token_id=0)[
        :, given["input_ids"].shape[1] :
    ]
    assert torch.equal(torch.from_numpy(np.asarray(names["tokens"])), expected)
