"""The wheel: everything of the rooms in it and nothing else, and enough to run on a machine without torch."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from email import message_from_bytes
from importlib import import_module
from pathlib import Path

import pytest

from onnxport.exporters.pipeline import export
from onnxport.exporters.recipe import Recipe

ROOT = Path(__file__).parents[1]
ROOMS = ("exporters", "verify", "configs")
SHIPPED = ("*.py", "py.typed", "*.yaml")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build folder that an earlier build left behind would end up in the wheel."""
    source = tmp_path_factory.mktemp("source")
    for name in (*ROOMS, "tests"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", source / "dist", cwd=source)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts folder of a new environment that has the wheel and what the wheel asks for."""
    place = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", place / "venv", cwd=place)
    scripts = place / "venv" / ("Scripts" if os.name == "nt" else "bin")
    run(scripts / "python", "-m", "pip", "install", "--quiet", wheel, cwd=place)
    return scripts


def light_requirements(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    return {re.split(r"[^\w-]", line)[0] for line in lines if "extra ==" not in line}


def test_the_wheel_holds_the_rooms_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    present = {
        f"onnxport/{path.relative_to(ROOT).as_posix()}"
        for room in ROOMS
        for pattern in SHIPPED
        for path in (ROOT / room).rglob(pattern)
    }
    assert len(present) > 30
    assert packed == present


def test_the_metadata_names_licence_script_and_python(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name.partition(".dist-info/")[2]: name for name in archive.namelist()}
        metadata = message_from_bytes(archive.read(files["METADATA"]))
        entry_points = archive.read(files["entry_points.txt"]).decode()
        licence = archive.read(files["licenses/LICENSE"]).decode()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Apache License" in licence
    assert metadata["Requires-Python"] == ">=3.10"
    assert "onnxport = onnxport.exporters.cli:main" in entry_points
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert not [line for line in needed if line.startswith(("torch", "transformers", "optimum"))]


def test_the_readme_tells_what_the_light_install_brings(wheel: Path) -> None:
    row = next(line for line in (ROOT / "README.md").read_text().splitlines() if "`pip install onnxport`" in line)
    assert set(row.split("|")[-2].strip().split(", ")) == light_requirements(wheel)


def test_what_the_verify_room_imports_is_required(wheel: Path) -> None:
    distributions = {"google": "protobuf"}
    imported = set()
    for path in (ROOT / "verify").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported |= {name.partition(".")[0] for name in names}
    third_party = imported - set(sys.stdlib_module_names) - {"onnxport"}
    assert {distributions.get(name, name) for name in third_party} <= light_requirements(wheel)


def test_the_command_runs_from_a_clean_environment_without_torch(clean: Path) -> None:
    elsewhere = clean.parents[1]
    assert "export" in run(clean / "onnxport", "--help", cwd=elsewhere).stdout
    assert "int8-cpu" in run(clean / "onnxport", "recipes", cwd=elsewhere).stdout
    told = run(clean / "onnxport", "env", cwd=elsewhere).stdout
    assert "torch                  not installed" in told


def test_a_bundle_is_verified_and_inspected_without_torch(
    clean: Path, make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    export(make_checkpoint("bert", "text-classification"), tmp_path / "out", recipe=Recipe(suite="quick"))
    assert "pass: " in run(clean / "onnxport", "verify", "out", cwd=tmp_path).stdout
    assert "text-classification" in run(clean / "onnxport", "inspect", "out", cwd=tmp_path).stdout
    use = "from onnxport.exporters import load_bundle as b; print(b('out').session('optimized').get_inputs()[0].name)"
    assert run(clean / "python", "-c", use, cwd=tmp_path).stdout == "input_ids\n"


def test_every_module_of_the_light_rooms_imports_without_torch(clean: Path) -> None:
    modules = [
        "onnxport." + path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for path in sorted((ROOT / "verify").rglob("*.py"))
        if path.name != "__init__.py"
    ]
    modules += ["onnxport.exporters.bundle", "onnxport.exporters.inspection", "onnxport.exporters.verification"]
    run(clean / "python", "-c", f"import {', '.join(modules)}", cwd=clean.parents[1])


def test_an_export_without_the_extra_says_what_to_install(clean: Path) -> None:
    command = [clean / "onnxport", "export", ".", "out"]
    ended = subprocess.run(command, cwd=clean.parents[1], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ")
    assert "pip install 'onnxport[export]'" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("package", ["onnxport.exporters", "onnxport.verify"])
def test_every_public_name_resolves(package: str) -> None:
    module = import_module(package)
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None
