"""The module in float64: what the noise of its own precision is measured against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from onnxport.exporters.errors import SignatureError
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.exporters.own_failure import own_failure
from onnxport.verify.cases import Case


def run_in_float64(exportable: Exportable, cases: Sequence[Case]) -> dict[str, Mapping[str, np.ndarray]]:
    """Returns the module's outputs in float64, by case. The module is as it was afterwards.

    Raises:
        SignatureError: the module does not run in float64, or narrows what it returns.
    """
    with _widened(exportable.module):
        return {case.name: _run(exportable, case) for case in cases}


def _run(exportable: Exportable, case: Case) -> Mapping[str, np.ndarray]:
    inputs = {
        name: array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array
        for name, array in case.inputs.items()
    }
    tensors = to_tensors(inputs)
    with own_failure("the module does not run in float64"):
        returned = exportable.call(tensors)
    outputs = exportable.named(returned)
    for name, tensor in outputs.items():
        if tensor.is_floating_point() and tensor.dtype != torch.float64:
            raise SignatureError(f"the module narrows its output {name} to {tensor.dtype} although it runs in float64")
    return {name: tensor.detach().numpy() for name, tensor in outputs.items()}


@contextmanager
def _widened(module: nn.Module) -> Iterator[None]:
    """Widens every weight in place, one at a time, and narrows it again; the way there and back loses nothing.

    A copy of the module would need the memory of both.
    """
    tensors = [tensor for tensor in (*module.parameters(), *module.buffers()) if tensor.is_floating_point()]
    dtypes = [tensor.dtype for tensor in tensors]
    try:
        for tensor in tensors:
            tensor.data = tensor.data.double()
        yield
    finally:
        for tensor, dtype in zip(tensors, dtypes, strict=True):
            tensor.data = tensor.data.to(dtype)
