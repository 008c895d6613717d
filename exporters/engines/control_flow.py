"""Finds where a module lets its data decide what Python does: what a trace cannot follow.

The tracer warns wherever a tensor becomes a Python value, also for sizes, which are harmless. In eager mode sizes are
plain numbers, so a tensor that becomes a Python value there is data. What both see at the same line is a branch, a
loop or a number that the trace would freeze.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from onnxport.exporters.exportable import Exportable


def find_data_dependence(
    exportable: Exportable, inputs: Mapping[str, Tensor], suspects: set[tuple[str, int]]
) -> list[str]:
    """Runs the module eagerly and describes every suspect line (file, line number) at which data is read.

    Returns sentences like "layer.gate (Gate), gate.py line 12: reads a tensor's value".
    """
    stack: list[str] = []
    found: dict[tuple[str, int], str] = {}

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten._local_scalar_dense.default:
                frame = sys._getframe()
                while frame is not None:
                    place = (frame.f_code.co_filename, frame.f_lineno)
                    if place in suspects:
                        module = stack[-1] if stack else "forward"
                        found.setdefault(place, f"{module}, {Path(place[0]).name} line {place[1]}: data decides")
                        break
                    frame = frame.f_back  # type: ignore[assignment]
            return func(*args, **(kwargs or {}))

    handles = []
    for name, module in exportable.module.named_modules():
        label = f"{name or 'the module itself'} ({type(module).__name__})"
        handles.append(module.register_forward_pre_hook(_entering(stack, label)))
        handles.append(module.register_forward_hook(_leaving(stack)))
    try:
        with torch.no_grad(), Watch():  # type: ignore[no-untyped-call]
            exportable.run(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return list(found.values())


def _entering(stack: list[str], label: str) -> Any:
    def hook(module: nn.Module, args: Any) -> None:
        stack.append(label)

    return hook


def _leaving(stack: list[str]) -> Any:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        stack.pop()

    return hook
