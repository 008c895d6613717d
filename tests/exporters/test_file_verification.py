"""Files that are no bundles, as other exporters write them, against the checkpoint they are said to come from."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import transformers
from torch import Tensor, nn

from onnxport.exporters import export
from onnxport.exporters.cli.app import run
from onnxport.exporters.errors import SignatureError
from onnxport.exporters.file_verification import ask_source, verify_file
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.recipe import Recipe
from onnxport.verify.errors import ModelFileError, ProviderError, VerificationError
from onnxport.verify.report import CheckResult, Report
from onnxport.verify.tolerance import FLOAT16, FLOAT32, Statistics, Tolerance
from zoo.vision import ROWS as VISION

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUTS = ("last_hidden_state", "pooler_output")
QUICK = Recipe(suite="quick")
LENGTH = 11


class Wrapper(nn.Module):
    """What a person writes around a checkpoint to export it: `called` names each input for forward's parameter."""

    def __init__(
        self, checkpoint: Path, called: Sequence[str], after: Callable[..., tuple[Tensor, ...]] | None
    ) -> None:
        super().__init__()
        self.model = transformers.AutoModel.from_pretrained(checkpoint, attn_implementation="eager").eval()
        self.called, self.after = tuple(called), after
        self.eval()

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        given = {name: tensor.long() for name, tensor in zip(self.called, inputs, strict=True)}
        returned = self.model(**given)
        outputs = tuple(returned[name] for name in OUTPUTS)
        return self.after(given, *outputs) if self.after else outputs


@pytest.fixture
def checkpoint(make_checkpoint: Callable[..., Path]) -> Path:
    return make_checkpoint("bert")


FileMaker = Callable[..., Path]


@pytest.fixture
def make_file(checkpoint: Path, tmp_path: Path) -> FileMaker:
    """Exports the checkpoint as Optimum does, unless told otherwise."""

    def make(
        *,
        inputs: Sequence[str] = INPUTS,
        called: Sequence[str] | None = None,
        outputs: Sequence[str] = OUTPUTS,
        after: Callable[..., tuple[Tensor, ...]] | None = None,
        dynamic: bool = True,
        dtype: torch.dtype = torch.int64,
    ) -> Path:
        path = tmp_path / "other.onnx"
        example = [torch.ones(2, LENGTH, dtype=dtype) for _ in inputs]
        axes = {name: {0: "batch_size", 1: "sequence_length"} for name in inputs}
        axes |= {name: {0: "batch_size"} for name in outputs}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                Wrapper(checkpoint, called or inputs, after),
                tuple(example),
                str(path),
                dynamo=False,
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_axes=axes if dynamic else None,
            )
        return path

    return make


def verified(path: Path, source: Path, recipe: Recipe = QUICK) -> Report:
    return verify_file(ask_source(path, str(source), recipe, HubOptions()))


def found(report: Report, verdict: str) -> list[CheckResult]:
    return [check for check in report.checks if check.verdict == verdict]


def details(report: Report, verdict: str) -> str:
    return "\n".join(check.detail for check in found(report, verdict))


def test_a_file_with_other_axis_names_passes_all_that_a_bundle_is_asked(make_file: FileMaker, checkpoint: Path) -> None:
    report = verified(make_file(), checkpoint, Recipe())
    assert not details(report, "fail")
    assert report.verdict == "pass"
    passed = {check.id for check in found(report, "pass")}
    assert passed >= {"graph.names", "graph.axes", "outputs.match", "rows.independent", "padding.invariant"}
    assert passed >= {"iobinding.match", "levels.match", "inputs.rejected", "session.loads", "graph.checker"}
    assert {check.variant for check in report.checks} == {"other.onnx"}
    padded = [check for check in report.checks if check.case == "padding.left" and check.output == OUTPUTS[0]]
    assert padded[0].padded_max_abs_diff is not None, "padding is told from real tokens by the source's axes"


def test_inputs_are_fed_by_name(make_file: FileMaker, checkpoint: Path) -> None:
    report = verified(make_file(inputs=("attention_mask", "input_ids")), checkpoint)
    assert not details(report, "fail")
    assert "no input token_type_ids: the source was run without it" in details(report, "skip")


def test_inputs_are_cast_where_nothing_is_lost(make_file: FileMaker, checkpoint: Path) -> None:
    assert verified(make_file(dtype=torch.int32), checkpoint).verdict == "pass"


def test_inputs_that_cannot_hold_the_ids(make_file: FileMaker, checkpoint: Path) -> None:
    with pytest.raises(VerificationError, match="takes input_ids as bool, which cannot hold the int64 values"):
        verified(make_file(dtype=torch.bool), checkpoint)


def test_a_size_that_only_the_file_leaves_open_need_not_be_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    next(row for row in VISION if row.name == "resnet image-classification").write(source)
    bundle = export(source, tmp_path / "out", recipe=Recipe(variants=("base",)), verify=False)
    assert not details(verified(bundle.file("base"), source, Recipe()), "fail")
    model = onnx.load(bundle.file("base"))
    for position, dim in enumerate(model.graph.input[0].type.tensor_type.shape.dim):
        dim.dim_param = ("batch_size", "num_channels", "height", "width")[position]
    onnx.save(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert session.run(None, {"pixel_values": np.ones((1, 3, 64, 48), np.float32)}), "the file takes other sizes"
    assert not details(verified(tmp_path / "model.onnx", source, Recipe()), "fail")


def test_swapped_inputs_fail(make_file: FileMaker, checkpoint: Path) -> None:
    report = verified(make_file(called=("input_ids", "token_type_ids", "attention_mask")), checkpoint)
    assert {check.id for check in found(report, "fail")} == {"outputs.match"}


def test_a_fixed_signature_fails(make_file: FileMaker, checkpoint: Path) -> None:
    report = verified(make_file(dynamic=False), checkpoint)
    assert {check.id for check in found(report, "fail")} == {"graph.axes", "outputs.match"}
    assert "input_ids is [2, 11], and in the source ['batch', 'sequence']" in details(report, "fail")


def test_a_length_that_is_baked_inside_fails(make_file: FileMaker, checkpoint: Path) -> None:
    def baked(_: object, hidden: Tensor, pooled: Tensor) -> tuple[Tensor, ...]:
        return hidden.reshape(-1, LENGTH, hidden.shape[-1]), pooled

    report = verified(make_file(after=baked), checkpoint)
    assert "outputs.match" in {check.id for check in found(report, "fail")}


def test_a_mask_that_is_dropped_fails_where_there_is_padding(make_file: FileMaker, checkpoint: Path) -> None:
    class Deaf(Wrapper):
        def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
            ids, mask, types = inputs
            return super().forward(ids, torch.ones_like(mask) + 0 * mask, types)

    path = make_file()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Deaf(checkpoint, INPUTS, None),
            tuple(torch.ones(3, 2, LENGTH, dtype=torch.int64)),
            str(path),
            dynamo=False,
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            dynamic_axes={name: {0: "b", 1: "s"} for name in INPUTS},
        )
    failed = found(verified(path, checkpoint), "fail")
    assert {str(check.case).partition(".")[0] for check in failed} == {"padding", "text"}


def test_an_output_that_the_file_lacks_is_told(make_file: FileMaker, checkpoint: Path) -> None:
    path = make_file(outputs=OUTPUTS[:1], after=lambda _, hidden, pooled: (hidden,))
    report = verified(path, checkpoint)
    assert report.verdict == "pass"
    assert [check.output for check in found(report, "skip") if check.id == "outputs.match"] == ["pooler_output"]


def test_an_output_that_the_source_lacks_fails(make_file: FileMaker, checkpoint: Path) -> None:
    path = make_file(outputs=(*OUTPUTS, "scores"), after=lambda _, hidden, pooled: (hidden, pooled, pooled * 2))
    report = verified(path, checkpoint)
    assert {check.id for check in found(report, "fail")} == {"graph.names", "outputs.match"}
    assert "the source has no output scores" in details(report, "fail")


def test_no_output_in_common(make_file: FileMaker, checkpoint: Path) -> None:
    path = make_file(outputs=("a", "b"))
    with pytest.raises(VerificationError, match=r"outputs a, b, .* gives last_hidden_state, pooler_output: none is"):
        verified(path, checkpoint)


def test_an_input_that_the_source_lacks(make_file: FileMaker, checkpoint: Path) -> None:
    path = make_file(inputs=(*INPUTS, "position_ids"))
    with pytest.raises(VerificationError, match=r"has the input position_ids, which .* is not fed with; expected some"):
        verified(path, checkpoint)


def test_the_names_of_sentence_transformers(make_file: FileMaker, checkpoint: Path, tmp_path: Path) -> None:
    source = tmp_path / "sentences"
    shutil.copytree(checkpoint, source)
    stages = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling")]
    entries = [
        {"idx": int(i), "name": i, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, path, kind in stages
    ]
    (source / "modules.json").write_text(json.dumps(entries))
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True})
    )

    def mean(given: dict[str, Tensor], hidden: Tensor, _: Tensor) -> tuple[Tensor, ...]:
        mask = given["attention_mask"].unsqueeze(-1).float()
        return hidden, (hidden * mask).sum(1) / mask.sum(1)

    def first(_: object, hidden: Tensor, pooled: Tensor) -> tuple[Tensor, ...]:
        return hidden, hidden[:, 0]

    names = ("token_embeddings", "sentence_embedding")
    report = verified(make_file(outputs=names, after=mean), source)
    assert not details(report, "fail")
    assert "compared: token_embeddings (last_hidden_state), sentence_embedding" in details(report, "pass")
    failed = found(verified(make_file(outputs=names, after=first), source), "fail")
    assert {check.output for check in failed} == {"sentence_embedding"}, "another pooling is another model"


def test_another_checkpoint_fails(make_file: FileMaker, make_checkpoint: Callable[..., Path]) -> None:
    other = make_checkpoint("bert", hidden_act="relu")
    assert verified(make_file(), other).verdict == "fail"


def test_a_quantised_operator_alone_makes_no_quantised_file(make_file: FileMaker, checkpoint: Path) -> None:
    path = make_file()
    model = onnx.load(path)
    zero = onnx.numpy_helper.from_array(np.zeros(1, np.uint8), "one_byte")
    scale = onnx.numpy_helper.from_array(np.float32(1), "one")
    model.graph.initializer.extend([zero, scale])
    model.graph.node.append(onnx.helper.make_node("DequantizeLinear", ["one_byte", "one"], ["unread"]))
    onnx.save(model, path)
    assert ask_source(path, str(checkpoint), QUICK, HubOptions()).subject.criterion == FLOAT32


def test_faults_are_planted_in_a_file_too(make_file: FileMaker, checkpoint: Path) -> None:
    report = verified(make_file(), checkpoint, QUICK.model_copy(update={"suite": "full"}))
    planted = {check.case: check.verdict for check in report.checks if (check.case or "").startswith("power.")}
    assert planted == dict.fromkeys(("power.mask", "power.swapped", "power.weights"), "pass")


def test_the_criterion_is_that_of_the_precision(make_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    source = str(make_checkpoint("bert", num_hidden_layers=1))  # float16 adds up over layers of weights this large
    bundle = export(source, tmp_path / "out", recipe=Recipe(variants=("fp16", "int8")), verify=False)
    half = ask_source(bundle.file("fp16"), source, QUICK, HubOptions())
    assert half.subject.criterion == FLOAT16
    assert not details(verify_file(half), "fail")
    quantised = ask_source(bundle.file("int8"), source, QUICK, HubOptions())
    assert quantised.subject.criterion == Statistics(min_cosine=0.9, min_argmax_agreement=0.9, min_topk_agreement=0.8)
    assert not details(verify_file(quantised), "fail")
    strict = ask_source(bundle.file("int8"), source, QUICK.model_copy(update={"rtol": 1e-6}), HubOptions())
    assert strict.subject.criterion == Tolerance(rtol=1e-6, atol=FLOAT32.atol)
    assert verify_file(strict).verdict == "fail"


def test_extra_outputs_are_asked_of_the_source(checkpoint: Path, tmp_path: Path) -> None:
    bundle = export(checkpoint, tmp_path / "out", recipe=Recipe(outputs=("hidden_states",)), verify=False)
    report = verified(bundle.file("base"), checkpoint)
    assert report.verdict == "pass"
    assert {check.output for check in report.checks} >= {"last_hidden_state", "hidden_states.0", "hidden_states.2"}


def test_a_plain_module_is_a_source_too(plain_modules: str, tmp_path: Path) -> None:
    source = f"{plain_modules}:bag_classifier"
    bundle = export(source, tmp_path / "out", verify=False)
    assert verify_file(ask_source(bundle.file("base"), source, QUICK, HubOptions())).verdict == "pass"


def test_a_full_suite_has_the_noise_floor_of_what_is_compared(make_file: FileMaker, checkpoint: Path) -> None:
    path = make_file(outputs=OUTPUTS[:1], after=lambda _, hidden, pooled: (hidden,))
    question = ask_source(path, str(checkpoint), Recipe(suite="full"), HubOptions(), case="padding.left")
    report = verify_file(question)
    assert not details(report, "fail")
    assert [check.output for check in report.checks if check.noise_floor is not None] == [OUTPUTS[0]]


def test_one_case_alone(make_file: FileMaker, checkpoint: Path) -> None:
    path = make_file()
    report = verify_file(ask_source(path, str(checkpoint), QUICK, HubOptions(), case="padding.left"))
    assert {check.case for check in report.checks if check.case} == {"padding.left"}
    with pytest.raises(VerificationError, match=r"suite quick has no case 'padding\.lft'.*did you mean"):
        ask_source(path, str(checkpoint), QUICK, HubOptions(), case="padding.lft")


def test_a_source_that_does_not_run_is_told_without_a_flag_of_export(
    checkpoint: Path, plain_modules: str, tmp_path: Path
) -> None:
    """A file has its axes already: --static would be refused."""
    masked = tmp_path / "masked.onnx"
    text = '<ir_version: 8, opset_import: ["" : 17]> g (int64[b, s] attention_mask) => (int64[b, s] pooler_output) '
    onnx.save(onnx.parser.parse_model(text + "{ pooler_output = Identity(attention_mask) }"), masked)
    with pytest.raises(SignatureError, match=r"no input input_ids.*without which .* does not run") as lacking:
        ask_source(masked, str(checkpoint), QUICK, HubOptions())
    assert "--component that the file was made from" in str(lacking.value)
    assert "--static" not in str(lacking.value)

    fixed, source = tmp_path / "fixed", "plain_modules:only_sixteen"
    export(source, fixed, recipe=Recipe(suite="quick", static={"n": 16}))
    with pytest.raises(SignatureError, match="itself fails on inputs of shape") as failing:
        ask_source(fixed / "model.onnx", source, QUICK, HubOptions())
    assert "--static" not in str(failing.value)


def test_what_cannot_be_asked(make_file: FileMaker, checkpoint: Path) -> None:
    with pytest.raises(ProviderError, match="NoProvider is not available"):
        ask_source(make_file(), str(checkpoint), QUICK, HubOptions(), provider="NoProvider")
    with pytest.raises(ModelFileError, match=r"config\.json is not an ONNX model"):
        ask_source(checkpoint / "config.json", str(checkpoint), QUICK, HubOptions())


class TestCommand:
    def test_agrees(
        self, make_file: FileMaker, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        reports = [str(tmp_path / f"report.{suffix}") for suffix in ("json", "xml", "md", "html")]
        asked = [part for report in reports for part in ("--report", report)]
        path = make_file(inputs=("input_ids",))
        command = ["verify", str(path), "--against", str(checkpoint), "--suite", "quick", *asked]
        assert run([*command, "--task", "feature-extraction"]) == 0
        told = " ".join(capsys.readouterr().err.split())
        lacking = "no input attention_mask, token_type_ids: the source was run without them"
        assert lacking in told, "nobody should miss a lost mask"
        assert Report.from_json(Path(reports[0]).read_bytes()).verdict == "pass"
        assert all("other.onnx" in Path(report).read_text() for report in reports)

    def test_it_is_timed_when_asked(
        self, make_file: FileMaker, checkpoint: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        command = ["verify", str(make_file()), "--against", str(checkpoint), "--suite", "quick", "--latency", "--json"]
        assert run(command) == 0
        report = Report.model_validate_json(capsys.readouterr().out)
        assert report.latency
        assert {one.variant for one in report.latency} == {"other.onnx"}
        assert all(set(one.sizes) == {"batch", "sequence"} for one in report.latency)

    def test_disagrees(self, make_file: FileMaker, checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = make_file(dynamic=False)
        assert run(["verify", str(path), "--against", str(checkpoint), "--suite", "quick", "--annotate"]) == 1
        assert f"::error file={path.as_posix()},title=graph.axes" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ([], "nothing in it says what it should compute; give the folder of a bundle, or the model with --against"),
            (["--against", "x", "--variant", "base"], "only a bundle has variants"),
        ],
    )
    def test_cannot_be_asked(
        self, arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "model.onnx").touch()
        assert run(["verify", str(tmp_path / "model.onnx"), *arguments]) == 2
        assert told in capsys.readouterr().err.replace("\n", " ")
