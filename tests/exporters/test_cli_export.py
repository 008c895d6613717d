"""export, verify and inspect from the command line, on a real checkpoint of two tiny layers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onnxport.exporters import load_bundle
from onnxport.exporters.cli.app import run
from onnxport.exporters.pipeline import export
from onnxport.exporters.recipe import Recipe

CheckpointMaker = Callable[..., Path]


@pytest.fixture(scope="module")
def bundle(make_checkpoint: CheckpointMaker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundles") / "tiny"
    export(make_checkpoint("bert", "text-classification"), out, recipe=Recipe(suite="quick"))
    return out


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


def test_export_writes_a_bundle_and_shows_the_verdict(
    make_checkpoint: CheckpointMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    checkpoint = str(make_checkpoint("bert", "text-classification"))
    flags = ["--suite", "quick", "--static", "batch=2", "--opset", "18", "--require-fusion", "Attention=2"]
    report = tmp_path / "report.md"
    assert run(["export", checkpoint, str(out), *flags, "--report", str(report), "--annotate"]) == 0
    told = capsys.readouterr()
    assert report.read_text(encoding="utf-8").startswith("## ✅ onnxport verify out: pass")
    assert "::notice title=onnxport verify::pass: " in told.err
    for part in ("check", "base", "optimized", "outputs", "worst ratio", "verdict", "pass: ", "allowed: "):
        assert part in told.out
    table = told.out.partition("\nverdict")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert re.findall(r"^(Load|Export|Variant optimized) ", told.err, re.MULTILINE) == [
        "Load",
        "Export",
        "Variant optimized",
    ]
    assert "Warning" not in told.err
    manifest = load_bundle(out).manifest
    assert manifest.recipe.static == {"batch": 2}
    assert manifest.recipe.opset == 18
    assert manifest.recipe.require_fusion == {"Attention": 2}


def test_export_refuses_to_replace_unless_told(
    make_checkpoint: CheckpointMaker, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = str(make_checkpoint("bert", "text-classification"))
    before = (copy / "bundle.json").read_bytes()
    assert run(["export", checkpoint, str(copy), "--quiet"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (copy / "bundle.json").read_bytes() == before
    flags = ["--quiet", "--overwrite", "--no-verify", "--variant", "base", "--json"]
    assert run(["export", checkpoint, str(copy), *flags]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["report"] is None
    assert document["manifest"]["verification"]["verdict"] == "skip"
    assert list(document["manifest"]["components"]["model"]["variants"]) == ["base"]
    assert (copy / "bundle.json").read_bytes() != before
    assert run(["inspect", str(copy)]) == 0
    assert re.search("verified +NOT verified", capsys.readouterr().out)


def test_quiet_leaves_the_verdict(
    make_checkpoint: CheckpointMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = str(make_checkpoint("bert", "text-classification"))
    assert run(["export", checkpoint, str(tmp_path / "out"), "--suite", "quick", "--variant", "base", "-q"]) == 0
    told = capsys.readouterr()
    assert re.fullmatch(r"pass: \d+ passed, 0 failed, \d+ skipped\n", told.out)
    assert "Export" not in told.err


def test_sigterm_leaves_nothing_beside_out(make_checkpoint: CheckpointMaker, tmp_path: Path) -> None:
    checkpoint = str(make_checkpoint("bert", "text-classification"))
    command = [sys.executable, "-m", "onnxport.exporters.cli", "export", checkpoint, str(tmp_path / "new" / "out")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Load ")
        assert [path.name.startswith(".out.onnxport-") for path in (tmp_path / "new").iterdir()] == [True]
        process.terminate()
        told = process.stderr.read().splitlines()
    assert process.returncode == 143
    assert told[-1] == "error: stopped by SIGTERM"
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_disagrees_is_exit_code_1_and_keeps_the_evidence(
    make_checkpoint: CheckpointMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    flags = ["--suite", "quick", "--variant", "base", "--rtol", "0", "--atol", "0"]
    checkpoint = str(make_checkpoint("bert", "text-classification"))
    assert run(["export", checkpoint, str(out), *flags]) == 1
    told = capsys.readouterr()
    assert "FAIL outputs.match model base" in told.out
    assert f"{out} was not written, the failed bundle is in out.failed" in told.err
    assert not out.exists()
    assert (tmp_path / "out.failed" / "verification" / "report.json").is_file()
    report = tmp_path / "junit.xml"
    assert run(["export", checkpoint, str(out), *flags, "--json", "--annotate", "--report", str(report)]) == 1
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert f"::error file={out.as_posix()}.failed/model.onnx,title=outputs.match" in told.err
    assert "<failure" in report.read_text(encoding="utf-8")
    assert document["bundle"] is None
    assert document["report"]["verdict"] == "fail"
    assert Path(document["failed_bundle"]).is_dir()


@pytest.mark.parametrize("as_json", [False, True])
def test_what_an_export_that_disagrees_says_reaches_stdout(plain_modules: str, tmp_path: Path, as_json: bool) -> None:
    command = [sys.executable, "-m", "onnxport.exporters.cli", "export", f"{plain_modules}:expm1", tmp_path / "out"]
    flags = ["--rtol", "0", "--atol", "0", "--engine", "torchscript", *(["--json"] if as_json else [])]
    here = Path(__file__).resolve().parents[1]  # where plain_modules.py is
    ended = subprocess.run([*command, *flags], cwd=here, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    if as_json:
        assert json.loads(ended.stdout)["report"]["verdict"] == "fail"
    else:
        assert "FAIL outputs.match model base" in ended.stdout


def test_a_recipe_and_flags_together(
    make_checkpoint: CheckpointMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("opset: 18\nsuite: quick\nvariants: [base]\nstatic: {batch: 2}\n")
    out = tmp_path / "out"
    checkpoint = str(make_checkpoint("bert", "text-classification"))
    assert run(["export", checkpoint, str(out), "--recipe", str(recipe), "--opset", "16", "--quiet"]) == 0
    stored = load_bundle(out).manifest.recipe
    assert (stored.opset, stored.static, stored.variants) == (16, {"batch": 2}, ("base",))


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--static", "sequense=8"], "did you mean 'sequence'"),
        (["--task", "fill-mask", "--axes", "input_idz=batch,sequence"], "input_ids"),
        (["--task", "token-classification", "--output", "hiden_states"], "hidden_states"),
        (["--opset", "99"], "99"),
        (["--require-fusion", "Attention", "--variant", "base"], "optimized"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_flags_that_do_not_fit_the_model_are_exit_code_2(
    flags: list[str],
    told: str,
    make_checkpoint: CheckpointMaker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    assert run(["export", str(make_checkpoint("bert", "text-classification")), str(out), *flags]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert told in error
    assert list(tmp_path.iterdir()) == []


def test_verify_agrees_and_reports(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    assert run(["verify", str(bundle), "--report", str(report)]) == 0
    told = capsys.readouterr().out
    assert "files" in told
    assert "golden" in told
    assert max(map(len, told.splitlines())) <= 80
    assert run(["verify", str(bundle), "--json", "-q"]) == 0
    again = capsys.readouterr()
    assert again.err == ""
    assert json.loads(again.out) == json.loads(report.read_text())


def test_the_stored_report_says_what_it_is_of_and_not_where_it_is(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = json.loads((bundle / "verification" / "report.json").read_text(encoding="utf-8"))["subject"]
    assert stored["architecture"] == "BertForSequenceClassification"
    assert (stored["task"], stored["engine"]) == ("text-classification", "torchscript")
    assert set(stored["versions"]) == {"onnxport", "torch", "transformers"}
    assert "name" not in stored
    assert "/" not in stored["model"]
    assert run(["verify", str(bundle), "--suite", "quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["subject"] == {**stored, "name": bundle.name, "suite": "quick"}


def test_verify_writes_every_format_and_annotates_on_stderr(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / "config.json").write_text("{}")
    reports = [tmp_path / f"report{suffix}" for suffix in (".json", ".xml", ".md", ".html")]
    flags = [part for report in reports for part in ("--report", str(report))]
    assert run(["verify", str(copy), *flags, "--annotate", "--json", "--quiet"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out) == json.loads(reports[0].read_text())
    (line,) = told.err.splitlines()
    assert line.startswith(f"::error file={copy.as_posix()}/bundle.json,title=files.sha256::config.json: has 2 bytes")
    assert ElementTree.parse(reports[1]).getroot().get("failures") == "1"
    assert "❌ **files.sha256**: config.json: has 2 bytes" in reports[2].read_text(encoding="utf-8")
    assert "Does not agree with the reference" in reports[3].read_text(encoding="utf-8")


def test_a_report_that_cannot_be_written_is_refused_before_the_checks(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "kept.md").write_text("as it was")
    before = sorted(tmp_path.iterdir())
    for path, told in (
        (bundle / "verification" / "report.json", "is in the bundle"),
        (tmp_path / "folder.json", "cannot be written"),
        (tmp_path / f"{'n' * 300}.html", "cannot be written"),
        (tmp_path / "kept.md" / "report.md", "is no folder"),
    ):
        assert run(["verify", str(bundle), "--report", str(tmp_path / "kept.md"), "--report", str(path)]) == 2
        ended = capsys.readouterr()
        assert told in ended.err
        assert "Verify" not in ended.err
        assert ended.out == ""
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "kept.md").read_text() == "as it was"
    assert run(["export", "x", str(tmp_path / "out"), "--report", str(tmp_path / "out" / "report.md")]) == 2
    assert "is in the bundle" in capsys.readouterr().err
    assert run(["export", "x", str(tmp_path / "out"), "--no-verify", "--annotate"]) == 2
    assert "nothing to report with --no-verify" in capsys.readouterr().err


def test_one_file_of_a_bundle_leads_to_the_bundle(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", str(bundle / "model.onnx")]) == 2
    assert f"{bundle} is a bundle: onnxport verify {bundle}. For model.onnx alone" in capsys.readouterr().err


def test_verify_disagrees_when_a_weight_changed(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = copy / "model.onnx"
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 0x40
    model.write_bytes(bytes(content))
    assert run(["verify", str(copy)]) == 1
    told = capsys.readouterr().out
    assert "FAIL files.sha256" in told
    assert run(["verify", str(copy), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "fail"


def test_verify_against_the_source(
    bundle: Path, make_checkpoint: CheckpointMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(make_checkpoint("bert", "text-classification"))
    assert run(["verify", str(bundle), "--against", source, "--suite", "quick", "--variant", "base"]) == 0
    told = capsys.readouterr()
    assert "outputs" in told.out
    assert "the weights of" not in told.err


def test_verify_against_another_model_disagrees(
    bundle: Path, make_checkpoint: CheckpointMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    other = str(make_checkpoint("bert", "text-classification", initializer_range=0.1, num_hidden_layers=1))
    assert run(["verify", str(bundle), "--against", other, "--suite", "quick", "--variant", "base"]) == 1
    told = capsys.readouterr()
    note = f"the weights of {Path(other).name} are not those the bundle was made from"
    assert "FAIL outputs.match model base" in told.out
    assert told.out.index("FAIL outputs.match") < told.out.index(f"note: {note}")
    flags = ["--suite", "quick", "--variant", "base", "--json", "--quiet"]
    assert run(["verify", str(bundle), "--against", other, *flags]) == 1
    assert json.loads(capsys.readouterr().out)["notes"] == [note]


def test_a_name_that_the_bundle_does_not_have_suggests_one(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", str(bundle), "--variant", "optimised"]) == 2
    assert "did you mean 'optimized'" in capsys.readouterr().err
    assert run(["verify", str(bundle), "--provider", "CPUExecutionProvidr"]) == 2
    assert "did you mean 'CPUExecutionProvider'" in capsys.readouterr().err


def test_inspect_a_bundle(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(bundle), "--top", "3"]) == 0
    told = capsys.readouterr().out
    for part in (
        "text-classification",
        "input_ids",
        "[batch, sequence]",
        "proven at",
        "model_optimized.onnx",
        "Attention",
    ):
        assert part in told
    assert "more not shown" in told
    assert re.search(r"fused: .*2 Attention", told)
    assert "level extended" in told
    assert "level none" not in told
    assert max(map(len, told.splitlines()[1:])) <= 80
    assert run(["inspect", str(bundle), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "bundle"
    assert document["components"]["model"]["variants"]["optimized"]["fusions"]["com.microsoft:Attention"] == 2


def test_inspect_a_single_file(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(bundle / "model.onnx")]) == 0
    told = capsys.readouterr().out
    assert "ONNX file" in told
    assert "opsets ai.onnx 17" in told


def test_inspect_and_verify_load_neither_torch_nor_transformers(bundle: Path) -> None:
    script = (
        "import sys\n"
        "from onnxport.exporters.cli.app import run\n"
        f"assert run(['verify', {str(bundle)!r}, '-q']) == 0\n"
        f"assert run(['inspect', {str(bundle)!r}]) == 0\n"
        "print(*[name for name in ('torch', 'transformers', 'optimum') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines()[-1] == ""


NOISY = """
import logging, os, sys, warnings
import torch
print("printed at import")

class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        print("printed in forward")
        warnings.warn("a warning")
        logging.getLogger("some.library").error("an error log")
        logging.warning("a warning log")
        if x.shape[0] > 1000:
            x = x + 1
        return self.linear(x) * 3

def make():
    torch.manual_seed(0)
    return Noisy(), {"x": torch.randn(2, 4)}
"""


def test_nothing_but_the_document_is_on_stdout_and_no_chatter_is_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "noisy_module.py").write_text(NOISY)
    command = [
        sys.executable,
        "-m",
        "onnxport.exporters.cli",
        "export",
        "noisy_module:make",
        "out",
        "--json",
        "--quiet",
    ]
    flags = ["--variant", "base", "--suite", "quick"]
    ended = subprocess.run([*command, *flags], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["report"]["verdict"] == "pass"
    assert set(ended.stderr.splitlines()) == {"printed at import", "printed in forward"}, (
        "what a person's own code prints"
    )


def test_the_graph_that_torch_dumps_when_it_fails_is_not_on_stdout(plain_modules: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "onnxport.exporters.cli", "export", f"{plain_modules}:resized", tmp_path / "out"]
    flags = ["--engine", "torchscript", "--json"]
    here = Path(__file__).resolve().parents[1]  # where plain_modules.py is
    ended = subprocess.run([*command, *flags], cwd=here, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert "needs opset 18" in json.loads(ended.stdout)["error"]["message"]


def test_a_factory_in_the_current_folder_is_found(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parent.parent / "plain_modules.py", tmp_path / "mine.py")
    command = Path(sys.executable).with_name("onnxport")
    flags = ["--suite", "quick", "--json", "--quiet"]
    done = subprocess.run(
        [str(command), "export", "mine:tagger", "out", *flags],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["manifest"]["source"]["model"] == "mine:tagger"
