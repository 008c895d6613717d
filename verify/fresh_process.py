"""Runs cases through a graph as a server would: a process of its own that knows numpy and ONNX Runtime alone.

The text of this module is what the process runs, so it imports nothing of onnxport. Its one argument is a JSON file
{"model", "provider", "options", "inputs"}: `options` as in `OrtRunner`; `inputs` is a `.npz` with arrays called
"<case number>/<input>". Besides, either "outputs", the `.npz` to write, with "<case number>/<output>"; or, to time the
cases, "durations", the JSON file to write, with "seconds", "least_runs" and "most_runs" for each.
"""

import json
import os
import sys
import time
from typing import Any

import numpy

_LEVELS = {"none": "DISABLE_ALL", "basic": "ENABLE_BASIC", "extended": "ENABLE_EXTENDED", "all": "ENABLE_ALL"}
_FATAL = 4
_WARM_UP = 0.2  # of the time for a case
_TASKS = "/proc/self/task"


def _main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        job = json.load(file)
    cases: dict[str, dict[str, Any]] = {}
    with numpy.load(job["inputs"], allow_pickle=False) as stored:
        for key in stored.files:
            number, name = key.split("/", 1)
            cases.setdefault(number, {})[name] = stored[key]
    if "durations" in job:
        _time(job, cases)
    else:
        _answer(job, cases)


def _answer(job: dict[str, Any], cases: dict[str, dict[str, Any]]) -> None:
    session = _open(job)
    names = [node.name for node in session.get_outputs()]
    found = {}
    for number, inputs in cases.items():
        for name, array in zip(names, session.run(names, inputs), strict=True):
            found[f"{number}/{name}"] = array
    numpy.savez(job["outputs"], **found)


def _time(job: dict[str, Any], cases: dict[str, dict[str, Any]]) -> None:
    import onnxruntime  # noqa: F401  (whatever threads it starts, they are there before those of the session)

    before = _tasks()
    session = _open(job)
    started = _tasks()
    threads = int(job["options"].get("intra_op_num_threads", 0)) or None
    if threads is None and before is not None and started is not None:
        threads = started - before + 1  # the caller's own thread works, too
    found = {}
    for number, inputs in cases.items():
        _runs(session, inputs, job["seconds"] * _WARM_UP, 1, job["most_runs"])
        found[number] = _runs(session, inputs, job["seconds"] * (1 - _WARM_UP), job["least_runs"], job["most_runs"])
    with open(job["durations"], "w", encoding="utf-8") as file:
        json.dump({"threads": threads, "milliseconds": found}, file)


def _runs(session: Any, inputs: dict[str, Any], seconds: float, least: int, most: int) -> list[float]:
    """Returns the duration of each run in milliseconds."""
    found: list[float] = []
    until = time.perf_counter() + seconds
    while len(found) < least or (len(found) < most and time.perf_counter() < until):
        started = time.perf_counter_ns()
        session.run(None, inputs)
        found.append((time.perf_counter_ns() - started) / 1e6)
    return found


def _tasks() -> "int | None":
    """Returns how many threads this process has, None where the operating system does not list them."""
    return len(os.listdir(_TASKS)) if os.path.isdir(_TASKS) else None


def _open(job: dict[str, Any]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    for key, value in job["options"].items():
        if key == "graph_optimization_level":
            options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{_LEVELS[value]}")
        elif key in ("intra_op_num_threads", "inter_op_num_threads"):
            setattr(options, key, int(value))
        else:
            options.add_session_config_entry(key, value)
    session = onnxruntime.InferenceSession(job["model"], options, providers=[job["provider"]])
    used = session.get_providers()[0]
    if used != job["provider"]:  # a provider whose libraries are missing is dropped without an exception
        sys.exit(f"it was to run on {job['provider']} and would run on {used}")
    return session


if __name__ == "__main__":
    _main(sys.argv[1])
