"""A bundle is built beside its destination and moved in place at the end, or not at all.

    with Staging(Path("out"), overwrite=False) as staging:
        ...                     # write the bundle into staging.path, scratch files into staging.work
        staging.commit()        # or staging.commit_failed()

The staging area is a hidden folder next to OUT, on the same filesystem, so that the move is one rename. It holds a
lock for as long as its process lives: what a killed run left behind is told from a live run by that lock.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import secrets
import shutil
import sys
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Literal

from onnxport.exporters.errors import BundleError
from onnxport.exporters.manifest import MANIFEST_NAME

if sys.platform != "win32":
    import fcntl

_LOCK = "lock"
_BUNDLE = "bundle"
_WORK = "work"
_REPLACED = "replaced"
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SYNCED_BYTES = 16 * 2**20
"""Files up to this size are flushed before the move; larger ones cost seconds, and their sha256 betrays a loss."""


class Staging:
    """Context manager around the making of one bundle.

    Leaving the block without a commit, by whatever exception, removes everything that was staged and leaves OUT alone.

    Args:
        out: folder that the bundle will be; its missing parents are created.
        overwrite: whether a bundle (or an empty folder) that is already there may be replaced.

    Raises:
        BundleError: on entry, when OUT cannot be written or must not be replaced; on commit, when that became so
            meanwhile; on exit, when the disk filled up.
    """

    def __init__(self, out: Path, overwrite: bool) -> None:
        self._out = Path(os.path.abspath(out))
        self._overwrite = overwrite
        self._area: Path | None = None
        self._lock: int | None = None
        self._created: list[Path] = []
        self._committed = False

    @property
    def path(self) -> Path:
        """The folder in which the bundle is built. It lies in `work`: scratch graphs may use weights that are in it."""
        return self.work / _BUNDLE

    @property
    def work(self) -> Path:
        """Scratch folder on the same filesystem; never part of the bundle."""
        return self._inside(_WORK)

    def __enter__(self) -> Staging:
        try:
            require_replaceable(self._out, self._overwrite)
            self._created = _make_parents(self._out.parent)
            _sweep(self._out)
            self._area, self._lock = _open_area(self._out)
            self.work.mkdir()
            self.path.mkdir()
        except BaseException as e:
            self._discard(ignore_errors=True)
            if isinstance(e, OSError):
                raise BundleError(
                    f"{self._out.parent} cannot be written: {e.strerror or e}. A bundle needs a folder in which files "
                    "can be made; choose another OUT."
                ) from e
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        free = _free_bytes(self._area) if self._area else None
        # Once the bundle is in place the export has succeeded: what cannot be removed now is left to the next run.
        self._discard(ignore_errors=error is not None or self._committed)
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            had = "" if free is None else f", {free:,} bytes were free"
            raise BundleError(
                f"no room to write {error.filename or 'the bundle'}: {error.strerror}{had}. Every variant and the "
                f"scratch files of the export must fit beside {self._out}; free some space or choose another OUT."
            ) from error

    def commit(self) -> Path:
        """Moves the bundle to OUT in one step and returns OUT. What was there stays whole until then."""
        return self._move(self._out, self._overwrite)

    def commit_failed(self) -> Path:
        """Moves the bundle to `OUT.failed` and returns that path. OUT is not touched.

        An earlier failed bundle is replaced. What is no bundle keeps its name: the first free one of `OUT.failed-2`,
        `OUT.failed-3` ... is taken then.
        """
        target = self._out.with_name(f"{self._out.name}.failed")
        try:
            require_replaceable(target, overwrite=True)
        except BundleError:
            names = (self._out.with_name(f"{target.name}-{number}") for number in count(2))
            target = next(path for path in names if not os.path.lexists(path))
        return self._move(target, overwrite=True)

    def _move(self, target: Path, overwrite: bool) -> Path:
        require_replaceable(target, overwrite)
        try:
            _flush(self.path)
            if not target.exists():
                os.rename(self.path, target)
            elif not _exchange(self.path, target):
                _replace(self.path, target, self._inside(_REPLACED))
            _flush_folder(target.parent)
        except OSError as e:
            if e.errno in _NO_SPACE:
                raise
            raise BundleError(
                f"the finished bundle could not be moved to {target}: {e.strerror or e}. What was there before is "
                "unchanged; check who else uses that folder and export again."
            ) from e
        self._committed = True
        return target

    def _inside(self, name: str) -> Path:
        if self._area is None:
            raise BundleError("the staging folder exists only inside the with block; enter it first.")
        return self._area / name

    def _discard(self, ignore_errors: bool) -> None:
        area, self._area = self._area, None
        try:
            if area is not None:
                _remove_area(area, ignore_errors)
        except OSError as e:
            raise BundleError(
                f"{area} could not be removed: {e.strerror or e}. Nothing in it is needed any more; delete it by hand."
            ) from e
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None
            if not self._committed:
                _remove_empty(self._created)


def require_apart(source: Path, out: Path) -> None:
    """OUT is replaced whole: a checkpoint in it would go with it.

    Raises:
        BundleError: OUT is the source, or contains it.
    """
    try:
        inside = source.exists() and source.resolve().is_relative_to(out.resolve())
    except (OSError, ValueError):  # a source that is no path
        return
    if inside:
        raise BundleError(f"{out} is the source or contains it; choose an OUT of its own")


def require_replaceable(target: Path, overwrite: bool) -> None:
    """Refuses a target that a bundle cannot take: a folder is replaced only when asked, and when nobody can miss it.

    Raises:
        BundleError: it exists and `overwrite` is off, it holds what no export wrote, or it is no place for a folder.
    """
    here = Path.cwd()
    if target == here or target in here.parents:
        raise BundleError(f"{target} is the current folder or contains it; a bundle goes into a folder of its own.")
    if target.is_symlink():
        raise BundleError(f"{target} is a link; name the folder that it points to, or choose another OUT.")
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise BundleError(f"{target} is a file; a bundle is a folder. Choose another OUT.")
    if os.path.ismount(target):  # Path.is_mount is not there on Windows before Python 3.12
        raise BundleError(f"{target} is a mount point, which cannot be replaced; name a folder inside it.")
    if not overwrite:
        raise BundleError(f"{target} exists already; pass --overwrite to replace a bundle, or choose another OUT.")
    foreign = _foreign_file(target)
    if foreign is not None:
        raise BundleError(
            f"{target} holds {foreign}, which belongs to no bundle, so the folder will not be deleted. "
            "Choose another OUT, or move that away yourself."
        )


def _foreign_file(folder: Path) -> str | None:
    """Returns a file below `folder` that no export put there; None: there is none.

    What an export wrote is listed in the manifest, which has a digest; other tools call their files bundle.json too.
    """
    try:
        content = json.loads((folder / MANIFEST_NAME).read_bytes())
        listed = {record["path"] for record in content["files"]} if content["digest"] else set()
        listed.add(MANIFEST_NAME)
    except (OSError, ValueError, TypeError, KeyError):
        listed = set()
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return next((name for path in found if (name := path.relative_to(folder).as_posix()) not in listed), None)


def _make_parents(parent: Path) -> list[Path]:
    """Creates missing folders; returns the new ones, innermost first, so that a failed export can take them back."""
    missing = []
    folder = parent
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = folder.parent
    created: list[Path] = []
    try:
        for folder in reversed(missing):
            folder.mkdir()
            created.insert(0, folder)
    except OSError:
        _remove_empty(created)
        raise
    return created


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:  # somebody else put something there
            return


def _open_area(out: Path) -> tuple[Path, int | None]:
    """Makes and locks a staging area. Another run may sweep it away before it is locked: then a new one is made."""
    while True:
        area = out.with_name(f".{out.name}.onnxport-{os.getpid()}-{secrets.token_hex(4)}")
        area.mkdir()
        try:
            lock = os.open(area / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            continue
        state = _lock(lock)
        if state == "taken" and _is_at(lock, area / _LOCK):
            return area, lock
        os.close(lock)
        if state == "unsupported":
            return area, None


def _sweep(out: Path) -> None:
    """Removes the staging areas of killed runs for the same OUT. One that is locked belongs to a live run and stays."""
    ours = re.compile(rf"\.{re.escape(out.name)}\.onnxport-\d+-[0-9a-f]+")
    for area in sorted(out.parent.iterdir()):
        if not ours.fullmatch(area.name) or area.is_symlink():
            continue
        try:
            lock = os.open(area / _LOCK, os.O_RDWR)
        except FileNotFoundError:
            _remove_empty([area])  # killed between making the folder and the lock, or about to make the lock
            continue
        except PermissionError:  # another user's
            continue
        try:
            if _lock(lock) == "taken":
                _restore(area / _REPLACED, out)
                _remove_area(area, ignore_errors=True)
        finally:
            os.close(lock)


def _remove_area(area: Path, ignore_errors: bool) -> None:
    """Removes a staging area, its lock last: while anything is left of it, a later run can tell that it is dead."""
    try:
        for part in (area / _WORK, area / _REPLACED):
            if part.exists():
                shutil.rmtree(part, ignore_errors=ignore_errors)
        if set(os.listdir(area)) <= {_LOCK}:
            shutil.rmtree(area, ignore_errors=ignore_errors)
    except OSError:
        if not ignore_errors:
            raise


def _restore(replaced: Path, out: Path) -> None:
    """A run killed between the two renames of `_replace` took the old bundle away: it is put back."""
    if replaced.is_dir() and not os.path.lexists(out):
        os.rename(replaced, out)


def _lock(descriptor: int) -> Literal["taken", "held", "unsupported"]:
    """Tries to take the lock, without waiting. "held": by a live process. "unsupported": there are no locks here."""
    if sys.platform == "win32":
        return "unsupported"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    except OSError:
        return "unsupported"
    return "taken"


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _exchange(a: Path, b: Path) -> bool:
    """Swaps two folders in one step. False where kernel, C library or filesystem cannot."""
    if sys.platform != "linux":
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    at_cwd, rename_exchange = -100, 2
    if renameat2(at_cwd, os.fsencode(a), at_cwd, os.fsencode(b), rename_exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM}:  # EPERM: a container's filter of system calls
        return False
    raise OSError(code, os.strerror(code), str(b))


def _replace(new: Path, target: Path, aside: Path) -> None:
    """The swap where there is no exchange: two renames, the first undone if the second fails.

    As after an exchange, `target` as it was is then at `new`: at `aside` it would be restored one day.
    """
    os.rename(target, aside)
    try:
        os.rename(new, target)
    except BaseException:
        if not os.path.lexists(target):
            os.rename(aside, target)
        raise
    with contextlib.suppress(OSError):
        os.rename(aside, new)


def _flush(root: Path) -> None:
    for folder, _, names in os.walk(root, topdown=False):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and path.stat().st_size <= _SYNCED_BYTES:
                _sync(path)
        _flush_folder(Path(folder))


def _flush_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every filesystem can
        _sync(folder)


def _sync(path: Path) -> None:
    if sys.platform == "win32":  # fsync would need every file opened for writing
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
