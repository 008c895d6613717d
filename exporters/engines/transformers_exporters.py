"""The one place that knows `transformers.exporters`, whose API moves between releases.

What it has over `torch.onnx.export`: while it traces, it replaces what torch cannot export (loops over data in
attention, mixtures of experts, masks) by equivalents, and it translates operators that torch lacks or gets wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import onnx_ir
from torch import Tensor, nn

from onnxport.exporters.engines.by_keyword import ByKeyword

_EXPORTERS = "transformers.exporters"


def holds_transformers_model(module: nn.Module) -> bool:
    """Returns whether the module is a model of transformers, or a wrapper around one, and it has exporters."""
    if find_spec("transformers") is None or find_spec(_EXPORTERS) is None:
        return False
    from transformers import PreTrainedModel

    return any(isinstance(part, PreTrainedModel) for part in module.modules())


def export_with_transformers(
    wrapper: ByKeyword, inputs: Mapping[str, Tensor], dynamic_shapes: Mapping[str, Mapping[int, Any]], opset: int
) -> onnx_ir.Model:
    """Exports through transformers' patches, without its optimisation.

    Args:
        wrapper: the module; the graph's inputs have the order of `inputs`, its outputs the wrapper's.
        inputs: tensors by name.
        dynamic_shapes: hints of torch.export by input and dimension.
        opset: version of the ONNX domain.
    """
    from transformers.exporters import OnnxConfig, OnnxExporter

    # Neutral names: torch.export wants identifiers, and transformers adds inputs of its own to those it knows by name.
    neutral = {name: f"in_{position}" for position, name in enumerate(inputs)}
    config = OnnxConfig(
        opset_version=opset,
        optimize=False,
        dynamic_shapes={neutral[name]: dict(dims) for name, dims in dynamic_shapes.items()},
        prefer_deferred_runtime_asserts_over_guards=True,
    )
    exported: Any = OnnxExporter().export(wrapper, {neutral[name]: tensor for name, tensor in inputs.items()}, config)
    # What `export` returns has been the program of torch, and since then a model with a component for each graph.
    for name in ("program", "model"):
        exported = exported if isinstance(exported, onnx_ir.Model) else getattr(exported, name, exported)
    if not isinstance(exported, onnx_ir.Model):
        raise TypeError(f"transformers.exporters returned a {type(exported).__name__}; expected an onnx_ir.Model")
    for value, name in zip(exported.graph.inputs, inputs, strict=True):
        value.name = name
    return exported


def fuse_with_transformers(model: onnx_ir.Model) -> bool:
    """Fuses a graph in place for ONNX Runtime on CPU; returns False where this version of transformers cannot."""
    try:
        from transformers.exporters.onnxruntime_fusions import fuse_for_onnxruntime
    except ImportError:
        return False
    fuse_for_onnxruntime(model, "cpu")
    return True
