"""The command line as a whole: help, exit codes, what goes to which stream, how it ends badly."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxport.exporters.cli.app import run
from onnxport.exporters.cli.failures import explain
from onnxport.exporters.errors import SourceError
from onnxport.exporters.recipe_file import shipped

COMMANDS = ("export", "verify", "localize", "inspect", "recipes", "env")
HEAVY = ("torch", "transformers", "onnxruntime", "onnx", "optimum", "numpy")


def onnxport(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs the command line as a process of its own."""
    command = [sys.executable, "-m", "onnxport.exporters.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("arguments", [[], ["--help"], *([command, "--help"] for command in COMMANDS)], ids=" ".join)
def test_help_loads_nothing_heavy_and_has_an_example(arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from onnxport.exporters.cli.app import run\n"
        f"code = run({arguments!r})\n"
        f"print('loaded:', *[name for name in {HEAVY!r} if name in sys.modules])\n"
        "sys.exit(code)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.rstrip().endswith("loaded:")
    if len(arguments) == 2:
        assert f"onnxport {arguments[0]}" in ended.stdout.partition("Example")[2]
    else:
        assert all(command in ended.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_shows_no_value_for_a_flag_and_has_a_short_name(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "-h"]) == 0
    told = capsys.readouterr().out
    assert "--debug" in told
    assert told.count("<bool>") == 1, "of --help alone, whose option is Typer's own"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"onnxport {version('onnxport')}\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["exprot"], "exprot"),
        (["export"], "SOURCE"),
        (["export", "x", "y", "--opsett", "18"], "--opset"),
        (["export", "x", "y", "--opset", "many"], "'--opset': seen 'many'; expected a whole number. Try"),
        (["export", "x", "y", "--static", "sequence=0"], "sequence=0"),
        (["export", "x", "y", "--axes", "input_ids"], "INPUT=axis,axis"),
        (["export", "x", "y", "--require-fusion", "Attention=none"], "OP[=N]"),
        (["export", "x", "y", "--rtol", "nan"], "finite"),
        (["export", "x", "y", "--rtol", "abc"], "'--rtol': seen 'abc'; expected a number like 0.001. Try"),
        (["verify", "x", "--max-loss", "abc"], "'--max-loss': seen 'abc'; expected a number like 0.001. Try"),
        (["export", "x", "y", "--level", "extnded"], "did you mean 'extended'?"),
        (["export", "x", "y", "--level", "all"], "this-machine"),
        (["export", "x", "y", "--engine", "torchscrip"], "did you mean 'torchscript'?"),
        (["export", "x", "y", "--task", "text-clasification"], "text-classification"),
        (["export", "x", "y", "--variant", "optimised"], "did you mean 'optimized'?"),
        (["export", "x", "y", "--recipe", "int8-cpuu"], "did you mean 'int8-cpu'?"),
        (["export", "x", "y", "--recipe", "missing.yaml"], "missing.yaml"),
        (["verify", "x", "--suite", "fulll"], "did you mean 'full'?"),
        (["verify", "x", "--report", "r.txt"], ".json, .xml, .md, .html"),
        (["verify", "x", "--report", "no/such/folder/r.json"], "no folder"),
        (["verify", "x", "--atol", "-1"], "-1"),
        (["verify", "no-such-bundle"], "no-such-bundle"),
        (["inspect", "no-such-file.onnx"], "no-such-file.onnx"),
        (["verify", "no-such-file.onnx", "--against", "x"], "an ONNX file with --against SOURCE"),
        (["inspect", "x", "--top", "0"], "'--top': seen 0; expected a whole number from 1"),
        (["inspect", "x", "--top", "many"], "'--top': seen 'many'; expected a whole number"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_exit_code_2_with_one_message(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    plain = capsys.readouterr()
    assert plain.out == ""
    assert plain.err.startswith("error: ")
    assert told in plain.err
    assert "Traceback" not in plain.err
    assert list(tmp_path.iterdir()) == [], "refused before anything is written"

    assert run([*arguments, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert told in document["error"]["message"]
    assert document["error"]["exit_code"] == 2


def test_flags_are_refused_before_anything_is_loaded() -> None:
    script = (
        "import sys\n"
        "from onnxport.exporters.cli.app import run\n"
        "run(['export', 'no-such-source', 'out', '--level', 'extnded'])\n"
        "print(*[name for name in ('torch', 'transformers', 'onnx', 'onnxruntime') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "did you mean" in ended.stderr
    assert ended.stdout == "\n"


def test_an_out_that_exists_is_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from onnxport.exporters.cli.app import run\n"
        f"run(['export', 'no-such-source', {str(tmp_path)!r}])\n"
        "print(*[name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "exists already; pass --overwrite" in ended.stderr
    assert ended.stdout == "\n"


def test_an_out_that_is_the_source_is_not_offered_to_be_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", str(tmp_path), str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "is the source or contains it" in told
    assert "--overwrite" not in told


def test_an_unexpected_exception_is_one_message_and_a_traceback_only_with_debug(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> dict[str, str]:
        raise RuntimeError("the moon is in the way")

    monkeypatch.setattr("onnxport.exporters.recipe_file.shipped", broken)
    assert run(["recipes"]) == 2
    told = capsys.readouterr().err
    assert "RuntimeError: the moon is in the way" in told
    assert "--debug" in told
    assert "Traceback" not in told
    assert run(["recipes", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (SourceError("x is missing"), "SourceError", "x is missing"),
        (
            ModuleNotFoundError("No module named 'torch'", name="torch"),
            "MissingExtra",
            "pip install 'onnxport[export]' (from a clone: pip install '.[export]')",
        ),
        (ModuleNotFoundError("no", name="transformers.models"), "MissingExtra", "transformers"),
        (ModuleNotFoundError("no", name="einops"), "MissingModule", "einops"),
        (ModuleNotFoundError("no", name="onnxport.configs"), "ModuleNotFoundError", "defect"),
        (OSError(errno.ENOSPC, "No space left on device", "out/model.onnx"), "OSError", "out/model.onnx: no space"),
        (PermissionError(errno.EACCES, "Permission denied", "out"), "PermissionError", "out: permission denied"),
        (OSError(errno.EROFS, "Read-only file system", "out"), "OSError", "out: the file system is read-only"),
        (OSError(errno.EIO, "Input/output error", "out"), "OSError", "out: Input/output error"),
        (MemoryError(), "MemoryError", "memory"),
        (ZeroDivisionError(), "ZeroDivisionError", "unexpected ZeroDivisionError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_error_table(error: Exception, kind: str, told: str) -> None:
    failure = explain(error)
    assert failure.kind == kind
    assert told in failure.message
    assert failure.exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["exprot"], "error: No such command 'exprot'. Did you mean 'export'? Try 'onnxport --help'.\n"),
        (["inspect"], "error: Missing argument 'PATH'. Try 'onnxport inspect --help'.\n"),
    ],
)
def test_usage_errors_are_sentences(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(
    ("number", "code", "told"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "stopped by SIGTERM"),
        (signal.SIGHUP, 129, "stopped by SIGHUP"),
    ],
)
def test_a_signal_is_one_line_and_runs_through_what_cleans_up(number: int, code: int, told: str) -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # which whoever runs the tests may ignore
        "import onnxport.exporters.recipe_file as recipe_file\n"
        "from onnxport.exporters.cli.app import run\n"
        "def wait():\n"
        "    try:\n"
        "        print('waiting', flush=True)\n"
        "        time.sleep(60)\n"
        "    finally:\n"
        "        print('cleaned up', file=sys.stderr, flush=True)\n"
        "recipe_file.shipped = wait\n"
        "sys.exit(run(['recipes', '--json']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert err == f"cleaned up\nerror: {told}\n"
    assert json.loads(out)["error"]["exit_code"] == code


def test_nohup_is_respected() -> None:
    script = (
        "import os, signal\n"
        "from onnxport.exporters.cli.stop_signals import stop_signals_raise\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "with stop_signals_raise():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "print('still here')"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "still here\n"


@pytest.mark.parametrize("code", [0, 1, None, "a word"])
def test_an_exit_from_code_that_is_run_is_no_verdict(
    code: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave() -> dict[str, str]:
        sys.exit(code)  # type: ignore[arg-type]

    monkeypatch.setattr("onnxport.exporters.recipe_file.shipped", leave)
    assert run(["recipes"]) == 2
    assert "must not call sys.exit()" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize(
    ("arguments", "redirected", "code", "told"),
    [
        ("recipes", "2>&-", 0, ""),
        ("recipes", "2>/dev/full", 0, ""),
        ("recipes", ">&-", 2, "error: standard output is closed"),
        ("recipes", ">&- 2>&- <&-", 2, ""),
        ("recipes", ">/dev/full", 2, "error: standard output: no space is left"),
        ("env --json", ">/dev/full", 2, "error: standard output: no space is left"),
        ("env", ">/dev/full 2>/dev/full", 2, ""),
        ("inspect nothing", "2>&-", 2, ""),
        ("inspect nothing", "2>/dev/full", 2, ""),
        ("--help", ">/dev/full", 2, "error: no space is left"),
        ("export --help", "2>&1 | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}", 0, ""),
    ],
)
def test_standard_streams_that_are_closed_or_full(arguments: str, redirected: str, code: int, told: str) -> None:
    command = f"{sys.executable} -m onnxport.exporters.cli {arguments} {redirected}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == code
    assert ended.stderr.startswith(told)
    assert len(ended.stderr.splitlines()) == bool(told)


def examples() -> list[list[str]]:
    """Every command in the help of a command."""
    from onnxport.exporters.cli import env, export, inspect, localize, recipes, verify

    texts = "\n".join(module.EXAMPLES for module in (export, verify, localize, inspect, recipes, env))
    lines = [line.partition(";")[0] for line in texts.splitlines() if line.startswith("onnxport ")]
    return [shlex.split(line)[1:] for line in lines]


@pytest.mark.parametrize("example", examples(), ids=" ".join)
def test_the_examples_of_the_help_are_accepted(
    example: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    offline = ["--offline"] if example[0] in ("export", "verify", "localize") else []
    ended = run([*example, *offline, "--json", "--quiet"])
    document = json.loads(capsys.readouterr().out)
    assert ended == 0 or document["error"]["type"] in ("SourceError", "BundleError"), "only what it names is missing"


def test_the_help_names_every_variant() -> None:
    from onnxport.exporters.cli.options import VARIANTS
    from onnxport.exporters.variants import KINDS

    assert VARIANTS.replace(" or ", ", ").split(", ") == list(KINDS)


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", "source", "BAD"),
        ("export", "BAD", "out"),
        ("verify", "BAD"),
        ("verify", "bundle", "--against", "BAD"),
        ("localize", "bundle", "--against", "BAD"),
    ],
    ids=" ".join,
)
def test_a_name_that_is_no_text_is_refused(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    bad = os.fsdecode(b"folder/bad\xff")
    assert run([bad if argument == "BAD" else argument for argument in arguments]) == 2
    assert "seen 'folder/bad\\xff', whose bytes are not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["recipes", "env"])
def test_nothing_is_wider_than_the_terminal(command: str, on_terminal: Callable[..., str]) -> None:
    lines = on_terminal("stdout", lambda: run([command])).splitlines()
    assert len(lines) > 4
    assert max(map(len, lines)) <= 80


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = [sys.executable, "-m", "onnxport.exporters.cli", "recipes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
    assert err == ""
    assert process.returncode == 0


def test_recipes_lists_what_is_shipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(shipped())
    assert run(["recipes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"recipes": shipped()}


def test_env_names_versions_and_providers(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert run(["env"]) == 0
    text = capsys.readouterr().out
    assert version("onnxruntime") in text
    assert run(["env", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["packages"]["onnxruntime"] == version("onnxruntime")
    assert "CPUExecutionProvider" in document["providers"]
    assert document["cpu_count"] >= 1


def test_env_does_not_import_torch() -> None:
    script = (
        "import sys; from onnxport.exporters.cli.app import run; run(['env', '--quiet']); print('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines()[-1] == "False"
    assert ended.stderr == ""


def test_names_that_the_terminal_cannot_show_do_not_end_a_command(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ended = onnxport("inspect", str(tmp_path / "modèle.onnx"), env=environment)
    assert ended.returncode == 2
    assert "mod\\xe8le.onnx" in ended.stderr
