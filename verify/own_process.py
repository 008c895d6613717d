"""A graph in a process of its own: what it answers there, and how long that takes (`fresh_process` is what runs)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.verify.cases import Case
from onnxport.verify.errors import SessionError
from onnxport.verify.inspection import without_folder
from onnxport.verify.subject import Subject

_TIMEOUT_S = 600


@dataclass(frozen=True)
class Durations:
    """How long single runs took.

    Attributes:
        threads: within an operator; None where neither an option nor the operating system tells.
        milliseconds: case name to the duration of each run, in the order in which they were made.
    """

    threads: int | None
    milliseconds: Mapping[str, Sequence[float]]


def answers(subject: Subject, cases: Sequence[Case]) -> dict[str, dict[str, np.ndarray]]:
    """Returns case name to output name to array.

    Raises:
        SessionError: the process did not end within 600 s, or not well (the file does not load, a case fails).
    """
    with tempfile.TemporaryDirectory(prefix="onnxport-") as folder:
        outputs = Path(folder) / "outputs.npz"
        _run(subject, cases, Path(folder), {"outputs": str(outputs)})
        found: dict[str, dict[str, np.ndarray]] = {}
        with np.load(outputs, allow_pickle=False) as stored:
            for key in stored.files:
                number, name = key.split("/", 1)
                found.setdefault(cases[int(number)].name, {})[name] = stored[key]
    return found


def durations(subject: Subject, cases: Sequence[Case], *, seconds: float, least_runs: int, most_runs: int) -> Durations:
    """Runs each case again and again, after a warm-up, and tells how long each run took.

    Args:
        subject: opened with its own provider and session options.
        cases: one after the other in one session.
        seconds: for each case, a fifth of it for the warm-up.
        least_runs, most_runs: are made however long, or short, they take.

    Raises:
        SessionError: as in `answers`.
    """
    with tempfile.TemporaryDirectory(prefix="onnxport-") as folder:
        found = Path(folder) / "durations.json"
        asked = {"durations": str(found), "seconds": seconds, "least_runs": least_runs, "most_runs": most_runs}
        _run(subject, cases, Path(folder), asked)
        document = json.loads(found.read_text(encoding="utf-8"))
    milliseconds = {case.name: document["milliseconds"][str(number)] for number, case in enumerate(cases)}
    return Durations(document["threads"], milliseconds)


def _run(subject: Subject, cases: Sequence[Case], folder: Path, asked: Mapping[str, Any]) -> None:
    inputs = folder / "inputs.npz"
    arrays = {f"{number}/{name}": array for number, case in enumerate(cases) for name, array in case.inputs.items()}
    np.savez(inputs, **arrays)  # type: ignore[arg-type]  # the stubs take keywords for options
    job = {
        "model": str(subject.path.absolute()),
        "provider": subject.provider,
        "options": dict(subject.session_options),
        "inputs": str(inputs),
        **asked,
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    program = files("onnxport.verify").joinpath("fresh_process.py").read_text(encoding="utf-8")
    try:
        ended = subprocess.run(
            [sys.executable, "-c", program, str(folder / "job.json")],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as e:
        raise SessionError(f"the process did not end within {_TIMEOUT_S} s") from e
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
        told = without_folder(last, subject.path)[:400]
        raise SessionError(f"the process ended with code {ended.returncode}: {told}")
