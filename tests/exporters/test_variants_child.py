"""What comes back from a child process: results, its errors, its death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from onnxport.exporters.errors import VariantError
from onnxport.exporters.variants.child import Children, run_in_child

WAIT_S = 60


def slow_script(folder: Path) -> Path:
    """A script that tells its process and then does nothing for ten minutes."""
    script = folder / "slow.py"
    script.write_text(
        "import os, time\n"
        "with open('half', 'w') as file: file.write(str(os.getpid()))\n"
        "os.rename('half', 'started')\n"
        "time.sleep(600)\n"
    )
    return script


def wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def wait_for_child(folder: Path) -> int:
    wait_until((folder / "started").exists)
    return int((folder / "started").read_text())


def has_ended(pid: int) -> bool:
    try:
        # Whoever takes in orphans may be slow to bury them.
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


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
    with pytest.raises(VariantError, match="os:abort was killed by SIGABRT") as caught:
        run_in_child("os:abort", tmp_path)
    assert "memory" not in str(caught.value)


def test_being_killed_mostly_means_that_memory_ran_out(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(VariantError, match=r"killed by SIGKILL.*memory ran out.*--variant base"):
        run_in_child("runpy:run_path", tmp_path, path_name="greedy.py")


def test_no_answer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VariantError, match="os:_exit ended without an answer"):
        run_in_child("os:_exit", tmp_path, status=0)


def wait_for_a_slow_child_beside(folder: Path, error: type[BaseException]) -> None:
    with ThreadPoolExecutor(1) as beside, Children() as children:
        waiting = beside.submit(children.run, "runpy:run_path", folder, path_name=slow_script(folder).name)
        wait_for_child(folder)
        assert not waiting.done()
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_error_beside_a_slow_child_ends_it(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        wait_for_a_slow_child_beside(tmp_path, error)
    assert has_ended(wait_for_child(tmp_path))


def test_an_error_while_waiting_for_a_slow_child_ends_it(tmp_path: Path) -> None:
    def interrupt() -> None:
        wait_for_child(tmp_path)
        os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as beside:
        beside.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_in_child("runpy:run_path", tmp_path, path_name=slow_script(tmp_path).name)
    assert has_ended(wait_for_child(tmp_path))


def test_no_child_starts_after_the_end(tmp_path: Path) -> None:
    with Children() as children:
        pass
    with pytest.raises(VariantError, match="was not started"):
        children.run("runpy:run_path", tmp_path, path_name=slow_script(tmp_path).name)
    assert not (tmp_path / "started").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="there a child outlives its parent")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_child_ends_when_its_parent_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "from pathlib import Path\n"
        "from onnxport.exporters.variants.child import run_in_child\n"
        f"run_in_child('runpy:run_path', Path({str(tmp_path)!r}), path_name={slow_script(tmp_path).name!r})"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        child = wait_for_child(tmp_path)
        parent.send_signal(number)
    wait_until(lambda: has_ended(child))
