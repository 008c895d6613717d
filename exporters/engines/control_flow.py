"""Finds where a module lets its data decide what Python does: what a trace cannot follow.

The tracer warns wherever a tensor becomes a Python value, also for sizes, which are harmless. In eager mode sizes are
plain numbers, so a tensor that becomes a Python value there is data. What both see at the same line is a branch, a
loop or a number that the trace would freeze.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from onnxport.exporters.exportable import Exportable

Place = tuple[str, int]
"""A file and a line number."""

_NOT_READERS = (str(Path(torch.__file__).parent), __file__)

# Torch functions whose Python result tells what a tensor holds, and that do not always reach the dispatcher.
_READS = ("tolist", "numpy", "__array__", "equal", "allclose")
# The other ways from a tensor to Python.
_CONVERSIONS = ("__bool__", "__int__", "__float__", "__index__", "__len__", "__iter__", "__contains__", "item")
# The same below the surface: bool(), int(), item(), iteration; and results whose size depends on the data.
_READING_OPS = ("_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2")


class TracedReads(TorchFunctionMode):
    """While a module is traced: notes the places where tensors become Python values.

    The tracer warns of most of them, but under a function mode its warnings name the mode's own line.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: set[Place] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in (*_READS, *_CONVERSIONS):
            self.places.add(_reader())
        return func(*args, **(kwargs or {}))


def find_data_dependence(exportable: Exportable, inputs: Mapping[str, Tensor], suspects: set[Place]) -> list[str]:
    """Runs the module eagerly and describes every suspect line at which data is read.

    A parameter or buffer that is read is no data: it is the same for every input.

    Returns sentences like "layer.gate (Gate), gate.py line 12: a tensor's value becomes a Python value".
    """
    stack: list[str] = []
    found: dict[Place, str] = {}
    constants = {t.data_ptr() for t in (*exportable.module.parameters(), *exportable.module.buffers()) if t.numel()}

    def note(tensors: Sequence[Any]) -> None:
        if all(isinstance(t, Tensor) and t.data_ptr() in constants for t in tensors):
            return
        place = _reader()
        if place in suspects:
            module = stack[-1] if stack else "forward"
            where = f"{module}, {Path(place[0]).name} line {place[1]}"
            found.setdefault(place, f"{where}: a tensor's value becomes a Python value")

    class Ops(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.overloadpacket.__name__ in _READING_OPS:
                note(args[:1])
            return func(*args, **(kwargs or {}))

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "__name__", "") in _READS:
                note(args[:2])
            return func(*args, **(kwargs or {}))

    handles = []
    for name, module in exportable.module.named_modules():
        label = f"{name or 'the module itself'} ({type(module).__name__})"
        handles.append(module.register_forward_pre_hook(_entering(stack, label)))
        handles.append(module.register_forward_hook(_leaving(stack)))
    try:
        with torch.no_grad(), Functions(), Ops():  # type: ignore[no-untyped-call]
            exportable.run(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return list(found.values())


def _reader() -> Place:
    """The line that reads: the innermost on the call stack that is neither torch's nor this module's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_READERS):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def _entering(stack: list[str], label: str) -> Any:
    def hook(module: nn.Module, args: Any) -> None:
        stack.append(label)

    return hook


def _leaving(stack: list[str]) -> Any:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        stack.pop()

    return hook
