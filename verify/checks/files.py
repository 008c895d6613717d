"""files.*: are the files of a bundle what was recorded?"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from onnxport.verify.contract import MANIFEST_NAME, FileRecord
from onnxport.verify.digest import file_sha256
from onnxport.verify.report import CheckResult


def check_sha256(root: Path, records: Sequence[FileRecord]) -> list[CheckResult]:
    """Every recorded file is there, regular and no link, of the recorded size and content; and there is no other.

    One result per file. The manifest cannot record itself, and is the only file that may be unrecorded.
    """
    recorded = [record.path for record in records]
    results = []
    for record in records:
        problem = _problem(root, record)
        if problem is None and recorded.count(record.path) > 1:
            problem = "recorded more than once"
        results.append(_result(record.path, problem))
    unrecorded = _present(root) - {*recorded, MANIFEST_NAME}
    results += [_result(path, "not recorded in the bundle") for path in sorted(unrecorded)]
    if not records:
        results.append(CheckResult(id="files.sha256", verdict="fail", detail="no file is recorded"))
    return results


def _result(path: str, problem: str | None) -> CheckResult:
    if problem is None:
        return CheckResult(id="files.sha256", verdict="pass", detail=f"{path}: size and sha256 as recorded")
    return CheckResult(id="files.sha256", verdict="fail", detail=f"{path}: {problem}")


def _problem(root: Path, record: FileRecord) -> str | None:
    path = root / record.path
    for folder in Path(record.path).parents:
        if (root / folder).is_symlink() and folder != Path("."):
            return f"its folder {folder.as_posix()} is a link, and a bundle holds none"
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return "is a link, and a bundle holds none; copy the file"
        if not stat.S_ISREG(status.st_mode):
            return "is not a regular file"
        if status.st_size != record.size_bytes:
            return f"has {status.st_size} bytes, recorded are {record.size_bytes}"
        found = file_sha256(path)
    except OSError as e:
        return "is missing" if isinstance(e, FileNotFoundError) else f"cannot be read: {e.strerror or e}"
    return None if found == record.sha256 else f"has sha256 {found}, recorded is {record.sha256}"


def _present(root: Path) -> set[str]:
    """Returns everything below `root` that is not a folder, links to folders included, as POSIX paths."""
    found = set()
    for folder, folders, files in os.walk(root):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        found |= {(Path(folder) / name).relative_to(root).as_posix() for name in (*files, *links)}
    return found
