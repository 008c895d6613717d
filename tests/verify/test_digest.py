from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from onnxport.verify.digest import file_sha256


@pytest.mark.parametrize("size_bytes", [0, 1, 2**20, 2**21 + 1])
def test_is_the_hash_of_the_whole_file(tmp_path: Path, size_bytes: int) -> None:
    content = bytes(i % 251 for i in range(size_bytes))
    path = tmp_path / "file"
    path.write_bytes(content)
    assert file_sha256(path) == hashlib.sha256(content).hexdigest()


def test_a_changed_last_byte_changes_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(2**20) + b"a")
    before = file_sha256(path)
    path.write_bytes(bytes(2**20) + b"b")
    assert file_sha256(path) != before


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        file_sha256(tmp_path / "file")
