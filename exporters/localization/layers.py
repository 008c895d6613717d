"""What every module of a model gives for one case, recorded while PyTorch runs it."""

from __future__ import annotations

import dataclasses
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onnxport.exporters.engines.tensor_forms import tensor_forms
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.verify.cases import Case


@dataclass(frozen=True, eq=False)
class LayerOutput:
    """One call of one module.

    Attributes:
        module: the module's name in the model, "encoder.layer.0.attention"; "" is the model itself.
        kind: name of its class.
        call: how often it was called before.
        path: the names of the modules whose call this one happened in, the outermost first, and its own.
        arrays: the floating point tensors it returned, in order.
    """

    module: str
    kind: str
    call: int
    path: tuple[str, ...]
    arrays: tuple[np.ndarray, ...]


def record_layers(exportable: Exportable, case: Case, *, as_traced: bool = False) -> list[LayerOutput]:
    """Runs a case once and returns every call of every module, in the order in which they ended.

    The hooks are gone afterwards. A tensor that several modules return is held once.

    Args:
        as_traced: with the forms that stand in the place of methods while TorchScript traces (`engines.tensor_forms`):
            the modules of ViLT give their patches in another order otherwise.
    """
    recorder = _Recorder()
    hooks = []
    try:
        for name, module in exportable.module.named_modules():
            hooks.append(module.register_forward_pre_hook(recorder.entering(name), with_kwargs=True))
            hooks.append(module.register_forward_hook(recorder.leaving(name)))
        forms = tensor_forms(exportable.module) if as_traced else nullcontext()
        with forms, torch.no_grad():  # not inference mode: its tensors do not count how often they were written to
            exportable.run(to_tensors(case.inputs))
    finally:
        for hook in hooks:
            hook.remove()
    return recorder.found


class _Recorder:
    def __init__(self) -> None:
        self.found: list[LayerOutput] = []
        self._open: list[str] = []
        self._calls: Counter[str] = Counter()
        self._copies: dict[int, tuple[weakref.ref[Tensor], int, np.ndarray]] = {}

    def entering(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            self._open.append(name)

        return hook

    def leaving(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, result: Any) -> None:
            arrays = tuple(self._copy(tensor) for tensor in _tensors(result))
            path = tuple(self._open)
            self._open.pop()
            self.found.append(LayerOutput(name, type(module).__name__, self._calls[name], path, arrays))
            self._calls[name] += 1

        return hook

    def _copy(self, tensor: Tensor) -> np.ndarray:
        """A later module may write into the tensor (an activation in place), so it is copied; once, if unwritten."""
        known = self._copies.get(id(tensor))
        if known is not None and known[0]() is tensor and known[1] == tensor._version:
            return known[2]
        array = tensor.detach().cpu().numpy().copy()
        self._copies[id(tensor)] = (weakref.ref(tensor), tensor._version, array)
        return array


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        if result.is_floating_point() and result.dtype != torch.bfloat16:  # numpy has no bfloat16
            yield result
    elif isinstance(result, Mapping):
        for value in result.values():
            yield from _tensors(value)
    elif isinstance(result, (tuple, list)):
        for value in result:
            yield from _tensors(value)
    elif dataclasses.is_dataclass(result):
        for field in dataclasses.fields(result):
            yield from _tensors(getattr(result, field.name))
