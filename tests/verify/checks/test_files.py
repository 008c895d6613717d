from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from onnxport.verify import verify_files
from onnxport.verify.contract import FileRecord
from onnxport.verify.errors import VerificationError


def record(root: Path, path: str) -> FileRecord:
    data = (root / path).read_bytes()
    return FileRecord(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "bundle"
    (root / "verification").mkdir(parents=True)
    (root / "model.onnx").write_bytes(b"graph")
    (root / "verification/report.json").write_bytes(b"{}")
    (root / "bundle.json").write_bytes(b"manifest")
    return root


@pytest.fixture
def records(root: Path) -> list[FileRecord]:
    return [record(root, "model.onnx"), record(root, "verification/report.json")]


def failures(root: Path, records: list[FileRecord]) -> list[str]:
    return [result.detail for result in verify_files(root, records) if result.verdict == "fail"]


def test_an_untouched_bundle(root: Path, records: list[FileRecord]) -> None:
    results = verify_files(root, records)
    assert [(r.id, r.verdict) for r in results] == [("files.sha256", "pass")] * 2
    assert results[1].detail == "verification/report.json: size and sha256 as recorded"


def test_a_flipped_byte(root: Path, records: list[FileRecord]) -> None:
    (root / "model.onnx").write_bytes(b"grapi")
    (detail,) = failures(root, records)
    assert detail.startswith("model.onnx: has sha256 ")
    assert detail.endswith(f"recorded is {records[0].sha256}")


def test_another_size(root: Path, records: list[FileRecord]) -> None:
    (root / "model.onnx").write_bytes(b"graph and more")
    assert failures(root, records) == ["model.onnx: has 14 bytes, recorded are 5"]


def test_a_missing_file(root: Path, records: list[FileRecord]) -> None:
    (root / "verification/report.json").unlink()
    assert failures(root, records) == ["verification/report.json: is missing"]


def test_files_that_nobody_recorded(root: Path, records: list[FileRecord]) -> None:
    (root / "verification/extra.bin").write_bytes(b"")
    (root / "verification/bundle.json").write_bytes(b"")  # only the one at the top is the manifest
    assert failures(root, records) == [
        "verification/bundle.json: not recorded in the bundle",
        "verification/extra.bin: not recorded in the bundle",
    ]


def test_links_are_refused_even_to_the_right_bytes(root: Path, records: list[FileRecord], tmp_path: Path) -> None:
    (root / "model.onnx").rename(tmp_path / "elsewhere.onnx")
    (root / "model.onnx").symlink_to(tmp_path / "elsewhere.onnx")
    (root / "dangling").symlink_to(tmp_path / "nowhere")
    assert failures(root, records) == [
        "model.onnx: is a link, and a bundle holds none; copy the file",
        "dangling: not recorded in the bundle",
    ]


def test_a_linked_folder_is_refused(root: Path, records: list[FileRecord], tmp_path: Path) -> None:
    (root / "verification").rename(tmp_path / "elsewhere")
    (root / "verification").symlink_to(tmp_path / "elsewhere")
    assert failures(root, records) == [
        "verification/report.json: its folder verification is a link, and a bundle holds none",
        "verification: not recorded in the bundle",
    ]


def test_what_is_no_regular_file(root: Path, records: list[FileRecord]) -> None:
    (root / "model.onnx").unlink()
    os.mkfifo(root / "model.onnx")  # reading it would wait for ever
    (root / "verification/report.json").unlink()
    (root / "verification/report.json").mkdir()
    assert failures(root, records) == [
        "model.onnx: is not a regular file",
        "verification/report.json: is not a regular file",
    ]


def test_records_themselves(root: Path, records: list[FileRecord]) -> None:
    assert failures(root, [*records, records[0]]) == ["model.onnx: recorded more than once"] * 2
    (root / "model.onnx").unlink()
    (root / "verification/report.json").unlink()
    assert failures(root, []) == ["no file is recorded"]


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="is no folder"):
        verify_files(tmp_path / "none", [])
