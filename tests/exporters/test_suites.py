"""Suites from export to verify: what is measured on PyTorch, stored in the bundle, and asked again without it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxport.exporters import load_bundle
from onnxport.exporters.bundle import seal
from onnxport.exporters.cli.app import run
from onnxport.exporters.pipeline import export
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.verification import verify_bundle
from onnxport.verify import Report
from onnxport.verify.contract import Vocabulary


@pytest.fixture(scope="module")
def bundle(make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("suites") / "tiny"
    export(make_checkpoint("bert", "token-classification"), out, recipe=Recipe(variants=("base",), suite="full"))
    return out


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


def failed(report: Report) -> set[str]:
    return {check.id for check in report.checks if check.verdict == "fail"}


def test_the_bundle_says_what_pytorch_keeps_and_which_ids_there_are(bundle: Path) -> None:
    manifest = load_bundle(bundle).manifest
    kept = {name: one.held for name, one in (manifest.components["model"].invariants or {}).items()}
    assert kept == {
        "rows.alone": True, "rows.reordered": True, "padding.right": True, "padding.left": False,
        "padding.content": True,
    }  # fmt: skip
    assert manifest.components["model"].vocabularies == {
        "input_ids": Vocabulary(size=96, padding=0),
        "token_type_ids": Vocabulary(size=2),
    }
    assert manifest.verification.tokenizer == "verification/tokenizer.json"
    report = load_bundle(bundle).report()
    assert report is not None
    assert {check.case for check in report.checks if check.id == "tokenizer.match"} == {
        "settings", "ids", "padding", "truncation", "transformers",
    }  # fmt: skip


def test_stored_cases_are_put_to_every_suite(bundle: Path) -> None:
    reports = {suite: verify_bundle(load_bundle(bundle), suite=suite) for suite in ("quick", "standard", "full")}
    ids = [{check.id for check in report.checks} for report in reports.values()]
    assert ids[0] < ids[1] < ids[2]
    assert all(report.verdict == "pass" for report in reports.values())
    skipped = {check.id for check in reports["full"].checks if check.verdict == "skip"}
    assert skipped == {"fusion.expected", "inputs.rejected", "padding.invariant"}


def test_an_export_asks_for_values_and_leaves_the_rest_to_verify(
    make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint = make_checkpoint("bert", "token-classification")
    bundle = export(checkpoint, tmp_path / "out", recipe=Recipe(variants=("base",)))
    exported = bundle.report()
    assert exported is not None
    asked = {check.id for check in exported.checks}
    assert {"outputs.match", "tokenizer.match"} <= asked
    assert not asked & {"levels.match", "iobinding.match", "inputs.rejected", "rows.independent"}
    stored = {check.id: check for check in verify_bundle(bundle).checks}
    assert stored["levels.match"].verdict == stored["iobinding.match"].verdict == "pass"
    assert stored["rows.independent"].verdict == "pass"
    assert run(["verify", str(tmp_path / "out"), "--against", str(checkpoint), "--quiet"]) == 0


def test_a_quick_export_does_not_measure_what_pytorch_keeps(
    make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    recipe = Recipe(variants=("base",), suite="quick")
    bundle = export(make_checkpoint("bert", "token-classification"), tmp_path / "out", recipe=recipe)
    stored = {check.id: check for check in verify_bundle(bundle, suite="standard").checks}
    assert stored["rows.independent"].verdict == "skip"
    assert "export with --suite standard, or verify --against" in stored["rows.independent"].detail


def test_a_wrong_padding_side_in_the_bundle(copy: Path) -> None:
    path = copy / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "padding_side": "left"}))
    seal(copy, load_bundle(copy).manifest)  # hashes are right: only the ids can tell
    report = verify_bundle(load_bundle(copy))
    assert failed(report) == {"tokenizer.match"}
    assert verify_bundle(load_bundle(copy), suite="quick").verdict == "pass"


def test_a_damaged_record_of_the_tokenizer(copy: Path) -> None:
    (copy / "verification" / "tokenizer.json").write_text("{}")
    seal(copy, load_bundle(copy).manifest)
    report = verify_bundle(load_bundle(copy))
    assert failed(report) == {"tokenizer.match"}
    assert str(copy) not in report.to_json()


def test_one_case_is_replayed_alone(
    bundle: Path, make_checkpoint: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(make_checkpoint("bert", "token-classification"))
    for flags, check in (([], "golden.match"), (["--against", source], "outputs.match")):
        assert run(["verify", str(bundle), "--case", "padding.left", "--json", *flags]) == 0
        found = Report.from_json(capsys.readouterr().out)
        assert {one.case for one in found.checks if one.id == check} == {"padding.left"}
        assert run(["verify", str(bundle), "--case", "pading.left", *flags]) == 2
        assert "did you mean 'padding.left'" in capsys.readouterr().err


def test_against_a_source_with_another_tokenizer(
    bundle: Path, make_checkpoint: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Path(shutil.copytree(make_checkpoint("bert", "token-classification"), tmp_path / "source"))
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    tokenizer["normalizer"]["strip_accents"] = False
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert run(["verify", str(bundle), "--against", str(source), "--case", "random.2x8", "--json"]) == 1
    assert failed(Report.from_json(capsys.readouterr().out)) == {"tokenizer.match"}
