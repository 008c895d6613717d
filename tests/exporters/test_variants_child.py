"""What comes back from a child process: results, its errors, its death."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxport.exporters.errors import VariantError
from onnxport.exporters.variants.child import run_in_child


def test_arguments_go_in_and_the_result_comes_back(tmp_path: Path) -> None:
    assert run_in_child("json:loads", tmp_path, s='{"a": [1]}') == {"a": [1]}


def test_the_working_folder_is_the_one_asked_for_and_is_not_searched_for_modules(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "here").touch()
    assert sorted(run_in_child("os:listdir", tmp_path, path=".")) == ["here", "json.py"]


def test_what_a_function_prints_does_not_mix_with_its_result(tmp_path: Path) -> None:
    assert run_in_child("builtins:print", tmp_path, sep=" ") is None


def test_an_os_error_stays_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        run_in_child("os:listdir", tmp_path, path="missing")
    assert caught.value.filename == "missing"


def test_an_unexpected_error_carries_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(VariantError, match=r"(?s)json:loads failed.*JSONDecodeError.*--variant base"):
        run_in_child("json:loads", tmp_path, s="{")


def test_a_crash_names_the_signal(tmp_path: Path) -> None:
    with pytest.raises(VariantError, match="os:abort was killed by SIGABRT"):
        run_in_child("os:abort", tmp_path)
