"""The PyTorch model as a runner: what every variant is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from onnxport.exporters.errors import SignatureError
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.verify.cases import Case
from onnxport.verify.runners import Recorded


@dataclass(frozen=True)
class TorchRunner:
    """Runs the unpatched module in inference mode. One case at a time, on the CPU."""

    exportable: Exportable
    name: str = "pytorch"

    def run(self, case: Case) -> dict[str, np.ndarray]:
        """Returns every output by name.

        Raises:
            SignatureError: part of the module is in train mode (dropout would poison the reference), or it fails.
        """
        training = [name or "the module" for name, module in self.exportable.module.named_modules() if module.training]
        if training:
            raise SignatureError(f"{training[0]} is in train mode; a reference needs eval(): call module.eval()")
        try:
            with torch.inference_mode():
                outputs = self.exportable.run(to_tensors(case.inputs))
        except (RuntimeError, ValueError, IndexError) as e:
            raise SignatureError(f"PyTorch itself fails on case {case.name}: {type(e).__name__}: {e}") from e
        return {name: tensor.numpy() for name, tensor in outputs.items()}


def record(exportable: Exportable, cases: Sequence[Case]) -> Recorded:
    """Runs every case once, so that the module can be released before any graph is loaded."""
    runner = TorchRunner(exportable)
    outputs: Mapping[str, Mapping[str, np.ndarray]] = {case.name: runner.run(case) for case in cases}
    return Recorded(runner.name, outputs)
