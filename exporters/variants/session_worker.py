"""The part of optimisation that runs in a child process, in the work folder: ONNX Runtime sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort

from onnxport.exporters.errors import VariantError
from onnxport.exporters.onnx_writer import SINGLE_FILE_LIMIT_BYTES, data_file
from onnxport.exporters.variants.operators import import_used_domains
from onnxport.verify.runners import make_session_options


def optimize(graph: str, optimized: str, level: str, portable: bool) -> dict[str, Any]:
    """Writes `graph` as ONNX Runtime optimises it to `optimized`, both in the working folder, and loads that again.

    Initializers that ONNX Runtime leaves alone keep their place in the data files of `graph`: it maps these into memory
    and never reads them. Where it could change more than one file can hold, it writes them all to a data file.
    """
    options = _options(level)
    options.optimized_model_filepath = optimized
    if _external_bytes(graph) > SINGLE_FILE_LIMIT_BYTES:
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", data_file(Path(optimized)).name
        )
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    _load(graph, options, [] if not portable else ["NchwcTransformer"])

    model = onnx.load(optimized, load_external_data=False)
    import_used_domains(model)
    Path(optimized).write_bytes(model.SerializeToString(deterministic=True))
    del model
    _load(optimized, _options("all"))
    return {}


def to_ort_format(graph: str, target: str) -> dict[str, Any]:
    """Writes `graph` as it is in ONNX Runtime's own format, and loads that again."""
    options = _options("none")
    options.optimized_model_filepath = target
    options.add_session_config_entry("session.save_model_format", "ORT")
    _load(graph, options)
    _load(target, _options("all"))
    return {}


def check_loads(graph: str) -> dict[str, Any]:
    """Loads a graph in a session as a consumer would."""
    _load(graph, _options("all"))
    return {}


def _options(level: str) -> ort.SessionOptions:
    # Nothing is run: weights need not be packed, and threads would take cores from PyTorch, which runs meanwhile.
    return make_session_options(
        {"graph_optimization_level": level, "session.disable_prepacking": "1", "intra_op_num_threads": "1"}
    )


def _load(graph: str, options: ort.SessionOptions, disabled: list[str] | None = None) -> None:
    try:
        ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled or [])
    except Exception as e:  # onnxruntime's exceptions share no base
        raise VariantError(
            f"ONNX Runtime {ort.__version__} cannot load {Path(graph).name}: {str(e).strip()} "
            "--variant base keeps the graph as exported."
        ) from e


def _external_bytes(graph: str) -> int:
    model = onnx.load(graph, load_external_data=False)
    return sum(
        int(entry.value)
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "length"
    )
