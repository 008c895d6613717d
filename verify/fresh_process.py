"""Runs cases through a graph as a server would: a process of its own that knows numpy and ONNX Runtime alone.

The text of this module is what the process runs, so it imports nothing of onnxport. Its one argument is a JSON file
{"model", "provider", "options", "inputs", "outputs"}: `options` as in `OrtRunner`; `inputs` is a `.npz` with arrays
called "<case number>/<input>", and `outputs` the one to write, with "<case number>/<output>".
"""

import json
import sys
from typing import Any

import numpy

_LEVELS = {"none": "DISABLE_ALL", "basic": "ENABLE_BASIC", "extended": "ENABLE_EXTENDED", "all": "ENABLE_ALL"}
_FATAL = 4


def _main(path: str) -> None:
    import onnxruntime

    with open(path, encoding="utf-8") as file:
        job = json.load(file)
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
    names = [node.name for node in session.get_outputs()]
    cases: dict[str, dict[str, Any]] = {}
    with numpy.load(job["inputs"], allow_pickle=False) as stored:
        for key in stored.files:
            number, name = key.split("/", 1)
            cases.setdefault(number, {})[name] = stored[key]
    found = {}
    for number, inputs in cases.items():
        for name, array in zip(names, session.run(names, inputs), strict=True):
            found[f"{number}/{name}"] = array
    numpy.savez(job["outputs"], **found)


if __name__ == "__main__":
    _main(sys.argv[1])
