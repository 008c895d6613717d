"""Outputs that depend on parameters for which the checkpoint has no weights."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from onnxport.exporters.errors import SourceError
from onnxport.exporters.exportable import Exportable, to_tensors


def without_untrained_outputs(exportable: Exportable, model: nn.Module, missing: Set[str], label: str) -> Exportable:
    """Leaves out the outputs that depend on parameters the checkpoint does not have.

    transformers fills such parameters with random numbers and only logs it. Which outputs they reach is found by
    changing them and looking.

    Args:
        model: what the checkpoint was loaded into; `exportable` is made of it.
        missing: names of its parameters.
        label: what the checkpoint is called.

    Raises:
        SourceError: an output that the task needs depends on them.
    """
    untrained = [
        tensor for name, tensor in _named_tensors(model).items() if name in missing and tensor.is_floating_point()
    ]
    generator = torch.Generator().manual_seed(0)
    inputs = to_tensors(exportable.sample(exportable.example, np.random.default_rng(0)))
    with torch.inference_mode():
        before = {name: tensor.clone() for name, tensor in exportable.run(inputs).items()}
        loaded = [tensor.clone() for tensor in untrained]
        for tensor in untrained:
            # Noise, not a shift: a layer norm that follows would take a shift away again.
            tensor.add_(torch.randn(tensor.shape, generator=generator).to(tensor.dtype))
        after = exportable.run(inputs)
        for tensor, values in zip(untrained, loaded, strict=True):
            tensor.copy_(values)
    tainted = {name for name in before if not torch.equal(before[name], after[name])}
    some = ", ".join(sorted(missing)[:3]) + (" ..." if len(missing) > 3 else "")
    task = exportable.source.task
    needed = tainted & set(exportable.outputs or ()) or (tainted if tainted == set(before) else set())
    if needed:
        raise SourceError(
            f"{label} has no weights for {some}, on which {', '.join(sorted(needed))} of task {task!r} depends: "
            "they would be random; use a checkpoint trained for the task, or another --task"
        )
    if not tainted:
        return exportable
    note = f"left out {', '.join(sorted(tainted))}: the checkpoint has no weights for {some}"
    return replace(exportable, dropped_outputs=frozenset(tainted), notes=(*exportable.notes, note))


def _named_tensors(module: nn.Module) -> Mapping[str, torch.Tensor]:
    return dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])
