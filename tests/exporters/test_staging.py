"""A killed, interrupted, failed or refused export leaves no half bundle and never harms what is at OUT."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from onnxport.exporters import staging as staging_module
from onnxport.exporters.errors import BundleError
from onnxport.exporters.staging import Staging

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals and locks of POSIX")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="renameat2 and /proc are Linux's")


def put(folder: Path, text: str = "new") -> None:
    """A folder that looks like a bundle whose one file is `old.onnx`."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {"files": [{"path": "old.onnx"}], "digest": "0", "text": text}
    (folder / "bundle.json").write_text(json.dumps(manifest))


def content(folder: Path) -> str:
    text: str = json.loads((folder / "bundle.json").read_text())["text"]
    return text


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def start(code: str, out: Path) -> subprocess.Popen[str]:
    """Runs `code` in another process and returns once it has printed a line: it is then in the middle of its work."""
    program = "import os, sys, time\nfrom pathlib import Path\nfrom onnxport.exporters import staging\n"
    program += "from onnxport.exporters.staging import Staging\nout = Path(sys.argv[1])\n" + textwrap.dedent(code)
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    return process


HALF_DONE = """
    with Staging(out, overwrite=True) as staged:
        (staged.path / "bundle.json").write_text("half")
        print("ready", flush=True)
        time.sleep(60)
"""


class TestCommit:
    def test_moves_the_bundle_in_place_and_leaves_nothing_else(self, tmp_path: Path) -> None:
        out = tmp_path / "deep" / "out"
        with Staging(out, overwrite=False) as staged:
            put(staged.path)
            (staged.work / "scratch").write_text("gone")
            assert not out.exists()
            assert staged.commit() == out
        assert names(out) == ["bundle.json"]
        assert names(out.parent) == ["out"]

    def test_staging_is_on_the_filesystem_of_out(self, tmp_path: Path) -> None:
        with Staging(tmp_path / "out", overwrite=False) as staged:
            assert staged.path.parent == staged.work
            assert staged.work.parent.parent == tmp_path

    def test_replaces_a_bundle_when_asked(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        put(out, "old")
        (out / "old.onnx").write_text("old")
        with Staging(out, overwrite=True) as staged:
            put(staged.path)
            staged.commit()
        assert content(out) == "new"
        assert names(out) == ["bundle.json"]
        assert names(tmp_path) == ["out"]

    @pytest.mark.parametrize("manifest", ['{"entry": "./src"}', "not json", '{"files": [], "digest": ""}', "[]"])
    def test_a_bundle_json_of_another_tool_protects_its_folder(self, tmp_path: Path, manifest: str) -> None:
        out = tmp_path / "out"
        out.mkdir()
        (out / "bundle.json").write_text(manifest)
        (out / "precious.txt").write_text("mine")
        with (
            pytest.raises(BundleError, match=r"precious\.txt, which belongs to no bundle"),
            Staging(out, overwrite=True),
        ):
            pass
        assert names(out) == ["bundle.json", "precious.txt"]

    def test_a_bundle_with_something_beside_it_is_not_replaced(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        put(out, "old")
        (out / "notes").mkdir()
        (out / "notes" / "mine.md").write_text("mine")
        with pytest.raises(BundleError, match=r"notes/mine\.md"), Staging(out, overwrite=True):
            pass
        assert content(out) == "old"

    def test_replaces_an_empty_folder_when_asked(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        with Staging(tmp_path / "out", overwrite=True) as staged:
            put(staged.path)
            staged.commit()
        assert content(tmp_path / "out") == "new"

    def test_the_folder_is_as_readable_as_any_other(self, tmp_path: Path) -> None:
        (tmp_path / "plain").mkdir()
        with Staging(tmp_path / "out", overwrite=False) as staged:
            put(staged.path)
            staged.commit()
        assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode

    def test_refuses_an_out_that_appeared_meanwhile(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        with Staging(out, overwrite=False) as staged:
            put(staged.path)
            put(out, "theirs")
            with pytest.raises(BundleError, match="exists already"):
                staged.commit()
        assert content(out) == "theirs"
        assert names(tmp_path) == ["out"]

    @LINUX
    def test_exchange_is_one_step(self, tmp_path: Path) -> None:
        put(tmp_path / "a", "a")
        put(tmp_path / "b", "b")
        assert staging_module._exchange(tmp_path / "a", tmp_path / "b")
        assert (content(tmp_path / "a"), content(tmp_path / "b")) == ("b", "a")

    @LINUX
    @pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
    def test_replaces_where_the_kernel_or_a_filter_refuses_to_exchange(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        class Refusing:
            @staticmethod
            def renameat2(*_: object) -> int:
                ctypes.set_errno(code)
                return -1

        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Refusing)
        put(tmp_path / "out", "old")
        with Staging(tmp_path / "out", overwrite=True) as staged:
            put(staged.path)
            staged.commit()
        assert content(tmp_path / "out") == "new"
        assert names(tmp_path) == ["out"]

    @pytest.mark.parametrize("exchange", [True, False])
    def test_an_old_bundle_that_cannot_be_deleted_is_no_failure_and_left_to_the_next_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
    ) -> None:
        out = tmp_path / "out"
        put(out, "old")
        if not exchange:
            monkeypatch.setattr(staging_module, "_exchange", lambda a, b: False)

        def busy(path: Path, ignore_errors: bool = False) -> None:
            if not ignore_errors:
                raise OSError(errno.EBUSY, "busy", str(path))

        with monkeypatch.context() as patched, Staging(out, overwrite=True) as staged:
            put(staged.path)
            staged.commit()
            patched.setattr(shutil, "rmtree", busy)
        assert content(out) == "new"
        assert len(names(tmp_path)) == 2
        shutil.rmtree(out)
        with Staging(out, overwrite=False):
            assert not out.exists(), "what was replaced long ago is not put back"
        assert names(tmp_path) == []

    @LINUX
    def test_exchange_reports_what_is_missing(self, tmp_path: Path) -> None:
        put(tmp_path / "a", "a")
        with pytest.raises(FileNotFoundError):
            staging_module._exchange(tmp_path / "a", tmp_path / "missing")


class TestTwoRenames:
    """What platforms without an exchange get."""

    def test_replaces(self, tmp_path: Path) -> None:
        put(tmp_path / "new", "new")
        put(tmp_path / "out", "old")
        staging_module._replace(tmp_path / "new", tmp_path / "out", tmp_path / "aside")
        assert (content(tmp_path / "out"), content(tmp_path / "new")) == ("new", "old")
        assert names(tmp_path) == ["new", "out"]

    def test_puts_the_old_bundle_back_when_the_second_rename_fails(self, tmp_path: Path) -> None:
        put(tmp_path / "out", "old")
        with pytest.raises(FileNotFoundError):
            staging_module._replace(tmp_path / "missing", tmp_path / "out", tmp_path / "aside")
        assert content(tmp_path / "out") == "old"

    @POSIX
    def test_killed_between_the_two_the_next_run_puts_the_old_bundle_back(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        put(out, "old")
        code = """
            rename = os.rename
            def stop_after_the_first(source, target):
                rename(source, target)
                print("ready", flush=True)
                time.sleep(60)
            staging._exchange = lambda a, b: False
            os.rename = stop_after_the_first
            with Staging(out, overwrite=True) as staged:
                (staged.path / "bundle.json").write_text("new")
                staged.commit()
        """
        process = start(code, out)
        process.kill()
        process.wait()
        assert not out.exists()
        with pytest.raises(RuntimeError), Staging(out, overwrite=True):
            raise RuntimeError
        assert content(out) == "old"
        assert names(tmp_path) == ["out"]


class TestCommitFailed:
    def test_leaves_out_alone(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        put(out, "verified")
        for text in ("first", "second"):
            with Staging(out, overwrite=True) as staged:
                put(staged.path, text)
                assert staged.commit_failed() == tmp_path / "out.failed"
            assert content(tmp_path / "out.failed") == text
        assert content(out) == "verified"
        assert names(tmp_path) == ["out", "out.failed"]

    def test_what_is_not_a_bundle_keeps_its_name_and_the_next_free_one_is_taken(self, tmp_path: Path) -> None:
        (tmp_path / "out.failed").mkdir()
        (tmp_path / "out.failed" / "notes.txt").write_text("mine")
        (tmp_path / "out.failed-2").write_text("a file")
        for number in (3, 4):
            with Staging(tmp_path / "out", overwrite=False) as staged:
                put(staged.path)
                assert staged.commit_failed() == tmp_path / f"out.failed-{number}"
        assert names(tmp_path) == ["out.failed", "out.failed-2", "out.failed-3", "out.failed-4"]
        assert names(tmp_path / "out.failed") == ["notes.txt"]
        assert content(tmp_path / "out.failed-3") == "new"


class TestRefusals:
    """Each is refused before any work is done."""

    @staticmethod
    def refused(out: Path, match: str, overwrite: bool = True) -> None:
        entered = False
        with pytest.raises(BundleError, match=match), Staging(out, overwrite=overwrite):
            entered = True
        assert not entered

    def test_exists_without_overwrite(self, tmp_path: Path) -> None:
        put(tmp_path / "out", "old")
        self.refused(tmp_path / "out", "--overwrite", overwrite=False)
        assert content(tmp_path / "out") == "old"
        assert names(tmp_path) == ["out"]

    def test_not_a_bundle(self, tmp_path: Path) -> None:
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "thesis.tex").write_text("years")
        self.refused(tmp_path / "home", "belongs to no bundle")
        assert names(tmp_path / "home") == ["thesis.tex"]

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_a_file(self, tmp_path: Path, overwrite: bool) -> None:
        (tmp_path / "out").write_text("a file")
        self.refused(tmp_path / "out", "is a file", overwrite)

    def test_a_link(self, tmp_path: Path) -> None:
        put(tmp_path / "real", "old")
        (tmp_path / "out").symlink_to(tmp_path / "real")
        self.refused(tmp_path / "out", "is a link")
        assert content(tmp_path / "real") == "old"

    def test_a_broken_link(self, tmp_path: Path) -> None:
        (tmp_path / "out").symlink_to(tmp_path / "nowhere")
        self.refused(tmp_path / "out", "is a link", overwrite=False)

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_the_current_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool) -> None:
        monkeypatch.chdir(tmp_path)
        self.refused(Path("."), "current folder", overwrite)
        self.refused(Path("/"), "current folder", overwrite)

    @LINUX
    def test_a_mount_point(self) -> None:
        self.refused(Path("/proc"), "mount point")

    def test_parent_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        self.refused(tmp_path / "file" / "out", "cannot be written")
        self.refused(tmp_path / "file" / "deeper" / "out", "cannot be written")

    @LINUX
    def test_parent_that_even_root_cannot_write(self) -> None:
        self.refused(Path("/proc/out"), "cannot be written")
        self.refused(Path("/proc/deeper/out"), "cannot be written")

    def test_name_too_long(self, tmp_path: Path) -> None:
        self.refused(tmp_path / ("x" * 300), "cannot be written")

    def test_path_is_known_only_inside_the_block(self, tmp_path: Path) -> None:
        with pytest.raises(BundleError, match="inside the with block"):
            _ = Staging(tmp_path / "out", overwrite=False).path


def fill_up() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))


def fail_in_the_middle(out: Path, error: type[BaseException], also: Path | None = None) -> None:
    with Staging(out, overwrite=False) as staged:
        put(staged.path)
        (staged.work / "scratch").write_text("")
        if also:
            also.write_text("")
        raise error


class TestFailure:
    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
    def test_removes_everything(self, tmp_path: Path, error: type[BaseException]) -> None:
        with pytest.raises(error):
            fail_in_the_middle(tmp_path / "new" / "deeper" / "out", error)
        assert names(tmp_path) == []

    def test_leaving_without_a_commit_writes_nothing(self, tmp_path: Path) -> None:
        with Staging(tmp_path / "out", overwrite=False) as staged:
            put(staged.path)
        assert names(tmp_path) == []

    def test_keeps_parents_that_somebody_else_uses(self, tmp_path: Path) -> None:
        with pytest.raises(KeyError):
            fail_in_the_middle(tmp_path / "new" / "out", KeyError, also=tmp_path / "new" / "theirs")
        assert names(tmp_path / "new") == ["theirs"]

    @POSIX
    def test_disk_full(self, tmp_path: Path) -> None:
        """A limit on file size stands in for a full disk: the write itself fails, half way."""
        out = tmp_path / "out"
        put(out, "old")
        code = """
            from onnxport.exporters.errors import BundleError
            try:
                with Staging(Path(sys.argv[1]), overwrite=True) as staged:
                    with open(staged.path / "weights", "wb") as file:
                        for _ in range(64):
                            file.write(bytes(1 << 20))
            except BundleError as e:
                print(e)
        """
        program = "import sys\nfrom pathlib import Path\nfrom onnxport.exporters.staging import Staging\n"
        run = subprocess.run(
            [sys.executable, "-c", program + textwrap.dedent(code), str(out)],
            capture_output=True,
            text=True,
            preexec_fn=fill_up,
            check=True,
        )
        assert "no room to write" in run.stdout
        assert "bytes were free" in run.stdout
        assert content(out) == "old"
        assert names(tmp_path) == ["out"]


@POSIX
class TestKilled:
    def test_kill_9_leaves_out_alone_and_the_next_run_cleans_up(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        put(out, "old")
        process = start(HALF_DONE, out)
        process.kill()
        process.wait()
        assert content(out) == "old"
        assert len(names(tmp_path)) == 2  # what the killed run could not remove
        with Staging(out, overwrite=True) as staged:
            assert len(names(tmp_path)) == 2  # its own
            put(staged.path)
            staged.commit()
        assert names(tmp_path) == ["out"]
        assert content(out) == "new"

    def test_sigint_cleans_up_at_once(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        put(out, "old")
        process = start(HALF_DONE, out)
        process.send_signal(signal.SIGINT)
        assert process.wait() != 0
        assert names(tmp_path) == ["out"]
        assert content(out) == "old"

    def test_a_live_run_is_left_alone(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        code = """
            with Staging(out, overwrite=True) as staged:
                (staged.path / "bundle.json").write_text('{"text": "slow"}')
                print("ready", flush=True)
                sys.stdin.readline()
                staged.commit()
        """
        process = start(code, out)
        with Staging(out, overwrite=False) as staged:
            assert len(names(tmp_path)) == 2
            put(staged.path, "fast")
            staged.commit()
        process.communicate("go\n")
        assert process.returncode == 0
        assert content(out) == "slow"
        assert names(tmp_path) == ["out"]

    @pytest.mark.parametrize("name", [".out.onnxport-1-ab", ".out.onnxport-notes", ".other.onnxport-1-ab"])
    def test_sweeps_only_its_own(self, tmp_path: Path, name: str) -> None:
        """Empty or unlocked areas of this OUT go; everything else stays."""
        area = tmp_path / name
        area.mkdir()
        (area / "lock").write_text("")
        with Staging(tmp_path / "out", overwrite=False):
            pass
        assert area.exists() == (name != ".out.onnxport-1-ab")

    def test_sweeps_an_area_killed_before_it_had_a_lock(self, tmp_path: Path) -> None:
        (tmp_path / ".out.onnxport-1-ab").mkdir()
        with Staging(tmp_path / "out", overwrite=False):
            pass
        assert names(tmp_path) == []

    def test_an_area_swept_before_it_was_locked_is_made_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        swept: list[Path] = []
        real = os.open

        def swept_once(path: Path, flags: int, mode: int = 0o777, **more: int) -> int:
            if not swept and flags & os.O_CREAT:
                swept.append(path.parent)
                path.parent.rmdir()
            return real(path, flags, mode, **more)

        monkeypatch.setattr(os, "open", swept_once)
        with Staging(tmp_path / "out", overwrite=False) as staged:
            assert staged.path.is_dir()
        assert len(swept) == 1
