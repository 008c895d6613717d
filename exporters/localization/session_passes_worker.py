"""The part of pass-finding that runs in a child process: ONNX Runtime only logs what its passes change."""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any

import onnxruntime as ort

from onnxport.verify.runners import make_session_options

_CHANGED = re.compile(r"GraphTransformer (\S+) modified: 1")
_VERBOSE = 0


def changing_passes(graph: str, options: dict[str, str], disabled: list[str]) -> dict[str, Any]:
    """Loads `graph` and returns the names of the passes that change it, in the order in which they first do."""
    chosen = make_session_options(options)
    chosen.log_severity_level = _VERBOSE
    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            ort.InferenceSession(graph, chosen, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        log.seek(0)
        text = log.read().decode(errors="replace")
    return {"passes": list(dict.fromkeys(_CHANGED.findall(text)))}
