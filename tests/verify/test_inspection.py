"""Messages in reports: files by their names, without the folders of one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxport.verify.inspection import without_folder


def test_a_relative_folder_goes_only_before_the_name_of_the_file() -> None:
    text = "out/model.onnx: outputs; expected output layout, seen out/puts in about"
    expected = "model.onnx: outputs; expected output layout, seen out/puts in about"
    assert without_folder(text, Path("out/model.onnx")) == expected


@pytest.mark.parametrize("folder", [".", "a", "out"])
def test_absolute_paths_go_however_the_file_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (tmp_path / "real" / folder).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path / "link")
    monkeypatch.setenv("PWD", str(tmp_path / "link"))
    for path in (Path(folder, "m.onnx"), tmp_path / "link" / folder / "m.onnx"):
        for named in (path, path.absolute(), path.resolve()):
            beside = named.resolve().with_name("m.onnx_data")
            assert without_folder(f"{named} needs {beside}, a datum", path) == "m.onnx needs m.onnx_data, a datum"


def test_names_are_relative_to_a_root_when_one_is_given(tmp_path: Path) -> None:
    path = tmp_path / "verification" / "golden.safetensors"
    assert without_folder(f"{path} is corrupt", path, tmp_path) == "verification/golden.safetensors is corrupt"
