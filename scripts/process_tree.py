"""Runs a command and measures it: wall time, and the peak of resident memory over its whole process tree."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 0.02
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True)
class Run:
    """One process from start to exit."""

    seconds: float
    peak_bytes: int


def measure(command: Sequence[str | Path], codes: Sequence[int] = (0,)) -> Run:
    """Runs a command and watches its process tree. An exit code not among `codes` ends it all with what was said."""
    import psutil

    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        process = psutil.Popen(
            [str(part) for part in command], stdout=output, stderr=output, env={**os.environ, **OFFLINE}
        )
        peak_bytes = 0
        while process.poll() is None:
            peak_bytes = max(peak_bytes, _tree_bytes(process))
            time.sleep(SAMPLE_SECONDS)
        seconds = time.perf_counter() - started
        if process.returncode not in codes:
            output.seek(0)
            sys.exit(f"exit code {process.returncode}: {command}\n{output.read().decode(errors='replace')[-3000:]}")
    return Run(seconds, peak_bytes)


def _tree_bytes(process: object) -> int:
    import psutil

    assert isinstance(process, psutil.Process | psutil.Popen)
    total = 0
    try:
        members = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    for member in members:
        try:
            total += member.memory_info().rss
        except psutil.Error:  # ended between the listing and the look
            continue
    return total
