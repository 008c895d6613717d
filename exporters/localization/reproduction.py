"""A folder that shows one wrong layer to somebody who has neither this package nor PyTorch."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from onnxport.exporters.errors import BundleError
from onnxport.exporters.localization.findings import LayerFinding
from onnxport.exporters.localization.walk import layer_criterion, real_rows
from onnxport.verify.cases import Case
from onnxport.verify.dissection import Arrays, Dissection
from onnxport.verify.runners import LEVELS
from onnxport.verify.tolerance import Criterion, Tolerance

DOCUMENT = "localization.json"

_SCRIPT = '''"""Runs one layer on the inputs it has in PyTorch: {title}. Needs numpy and onnxruntime."""
import pathlib, sys, numpy as np, onnxruntime as ort
here = pathlib.Path(__file__).parent
options = ort.SessionOptions()
{options}
session = ort.InferenceSession(str(here / "layer.onnx"), options, providers=["CPUExecutionProvider"])
found = session.run(None, dict(np.load(here / "inputs.npz")))[0].astype(np.float64)
expected, real = np.load(here / "expected.npz").values()
if found.shape != expected.shape: sys.exit(f"the output is {{found.shape}}, expected {{expected.shape}}")
difference = np.where(real, np.abs(found - expected), 0)
{ratio}
print(f"largest difference {{difference.max():.6g}}, {{ratio:.6g}} times what is allowed ({allowed})")
sys.exit(not ratio <= 1)
'''
_BY_ELEMENT = "ratio = (difference / ({atol!r} + {rtol!r} * np.abs(expected))).max()"
_BY_STATISTICS = """rows = [
    (a, b) for a, b, kept in zip(*(x.reshape(-1, x.shape[-1]) for x in (found, expected, real))) if kept.any()
]
ratio = max(
    np.sqrt((difference**2)[real].mean() / (expected**2)[real].mean()) / {rms!r},
    (1 - min(np.dot(a, b) / np.sqrt(np.dot(a, a) * np.dot(b, b)) for a, b in rows)) / {angle!r},
)"""


def require_free(folder: Path) -> None:
    """Makes sure that `write_reproduction` may use the folder: it is new, empty, or of an earlier localisation.

    Raises:
        BundleError: it holds something else.
    """
    if folder.is_dir() and not folder.is_symlink():
        if (folder / DOCUMENT).is_file() or not any(folder.iterdir()):
            return
    elif not folder.exists() and not folder.is_symlink():
        return
    raise BundleError(f"{folder} exists and is not from an earlier localisation; choose another folder with --out.")


def clear(folder: Path) -> None:
    """Empties the folder, after `require_free`."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def write_reproduction(
    folder: Path,
    graph: Dissection,
    layer: LayerFinding,
    case: Case,
    known: Arrays,
    expected: np.ndarray,
    criterion: Criterion,
    options: Mapping[str, str],
) -> None:
    """Writes the layer's own graph, its inputs and what PyTorch has for its output, and a script that compares.

    Args:
        folder: made here.
        known: PyTorch's values of the layers, in the graph's dtypes.
        expected: PyTorch's value of this layer, in its own.
        criterion: that of the graph's outputs.
        options: session options that the layer was found wrong with.

    Raises:
        SessionError: the weights of the layer cannot be read.
        OSError: the folder cannot be written.
    """
    segment = graph.segment(layer.value, known)
    inputs = {name: known[name] if name in known else case.inputs[name] for name in segment.inputs}
    model = graph.cut(segment, inputs)
    folder.mkdir(parents=True)
    onnx.save(model, folder / "layer.onnx")
    np.savez(folder / "inputs.npz", **inputs)  # type: ignore[arg-type]
    real = real_rows(case, expected.shape)
    positions = np.ones(expected.shape, bool) if real is None else np.broadcast_to(real, expected.shape)
    np.savez(folder / "expected.npz", expected=expected, real=positions)
    allowed = layer_criterion(criterion, expected, real)
    if isinstance(allowed, Tolerance):
        ratio = _BY_ELEMENT.format(atol=allowed.atol, rtol=allowed.rtol)
        told = f"{allowed.atol:.3g} + {allowed.rtol:.3g} * |expected|"
    else:
        rms = min(allowed.max_rms_error, 10 ** (-allowed.min_sqnr_db / 20))
        ratio = _BY_STATISTICS.format(rms=rms, angle=max(1 - allowed.min_cosine, 1e-12))
        told = f"RMS {rms:.3g} of the expected, cosine {allowed.min_cosine:.3g}"
    title = f"{layer.module or 'the model'} ({layer.kind})"
    script = _SCRIPT.format(title=title, options=_options(options), ratio=ratio, allowed=told)
    (folder / "reproduce.py").write_text(script, encoding="utf-8")


def _options(options: Mapping[str, str]) -> str:
    lines = []
    for key, value in options.items():
        if key == "graph_optimization_level":
            lines.append(f"options.graph_optimization_level = ort.GraphOptimizationLevel.{LEVELS[value]}")
        elif key.endswith("_num_threads"):
            lines.append(f"options.{key} = {int(value)}")
        else:
            lines.append(f"options.add_session_config_entry({key!r}, {value!r})")
    return "\n".join(lines) or "# session options as they come"
