"""reload.*: does the file on disk answer the same in a process of its own?"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import numpy as np

from onnxport.verify.inspection import without_folder
from onnxport.verify.probe import Probe
from onnxport.verify.report import CheckResult
from onnxport.verify.runners import Recorded

_TIMEOUT_S = 600


def check_match(probe: Probe) -> list[CheckResult]:
    """A fresh process that has only numpy and ONNX Runtime loads the file and gives the reference's outputs."""
    with tempfile.TemporaryDirectory(prefix="onnxport-") as folder:
        try:
            answers = _answers(probe, Path(folder))
        except _Failed as e:
            return [probe.trial.result("reload.match", "fail", without_folder(str(e), probe.subject.path))]
    return [probe.against_reference("reload.match", "in a process of its own", Recorded("the process", answers))]


class _Failed(Exception):
    pass


def _answers(probe: Probe, folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """Returns case name to output name to array."""
    subject = probe.subject
    inputs, outputs = folder / "inputs.npz", folder / "outputs.npz"
    arrays = {f"{number}/{name}": array for number, case in enumerate(probe.few) for name, array in case.inputs.items()}
    np.savez(inputs, **arrays)  # type: ignore[arg-type]  # the stubs take keywords for options
    job = {
        "model": str(subject.path.absolute()),
        "provider": subject.provider,
        "options": dict(subject.session_options),
        "inputs": str(inputs),
        "outputs": str(outputs),
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
        raise _Failed(f"the process did not end within {_TIMEOUT_S} s") from e
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise _Failed(f"the process ended with code {ended.returncode}: {last[:400]}")
    found: dict[str, dict[str, np.ndarray]] = {}
    with np.load(outputs, allow_pickle=False) as stored:
        for key in stored.files:
            number, name = key.split("/", 1)
            found.setdefault(probe.few[int(number)].name, {})[name] = stored[key]
    return found
