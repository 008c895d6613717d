"""The PyTorch model as a runner: what every variant is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from onnxport.exporters.bundle import Bundle
from onnxport.exporters.engines import ENGINES
from onnxport.exporters.errors import SignatureError
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.loading import load
from onnxport.exporters.recipe import Suite
from onnxport.verify.cases import Case
from onnxport.verify.runners import Recorded


@dataclass(frozen=True)
class TorchRunner:
    """Runs the unpatched module in inference mode. One case at a time, on the CPU."""

    exportable: Exportable
    name: str = "pytorch"

    def require_eval(self) -> None:
        """Raises SignatureError when part of the module is in train mode: dropout would poison the reference."""
        training = [name or "the module" for name, module in self.exportable.module.named_modules() if module.training]
        if training:
            raise SignatureError(f"{training[0]} is in train mode; a reference needs eval(): call module.eval()")

    def run(self, case: Case) -> dict[str, np.ndarray]:
        """Returns every output by name.

        Raises:
            SignatureError: part of the module is in train mode, or PyTorch itself fails on these inputs.
        """
        self.require_eval()
        try:
            with torch.inference_mode():
                outputs = self.exportable.run(to_tensors(case.inputs))
        except (RuntimeError, ValueError, IndexError) as e:
            raise SignatureError(f"PyTorch itself fails on case {case.name}: {type(e).__name__}: {e}") from e
        return {name: tensor.numpy() for name, tensor in outputs.items()}


@dataclass(frozen=True)
class Recording:
    """What PyTorch answered. `refused`: cases PyTorch itself fails on, with the reason; they are not in `cases`."""

    runner: Recorded
    cases: tuple[Case, ...]
    refused: Mapping[str, str]


def record(exportable: Exportable, cases: Sequence[Case], advance: Callable[[int, int], None]) -> Recording:
    """Runs every case once, so that the module can be released before any graph is loaded.

    Raises:
        SignatureError: PyTorch fails on every case, or part of the module is in train mode.
    """
    runner = TorchRunner(exportable)
    runner.require_eval()
    outputs: dict[str, Mapping[str, np.ndarray]] = {}
    refused: dict[str, str] = {}
    for done, case in enumerate(cases, 1):
        try:
            outputs[case.name] = runner.run(case)
        except SignatureError as e:
            refused[case.name] = str(e)
        advance(done, len(cases))
    if not outputs:
        raise SignatureError(next(iter(refused.values()), "the suite has no cases: nothing to compare"))
    kept = tuple(case for case in cases if case.name in outputs)
    return Recording(Recorded(runner.name, outputs), kept, refused)


def reference_for(bundle: Bundle, source: str, hub: HubOptions, suite: Suite | None) -> Recording:
    """Loads the source that a bundle is said to come from, and records its answers to the cases of a suite.

    The recipe stored in the bundle decides task, dtype and axes; `suite` None: the suite of the export.

    Raises:
        SourceError, TaskError, SignatureError: as for an export.
    """
    recipe = bundle.manifest.recipe.model_copy(update={} if suite is None else {"suite": suite})
    exportable = load(source, recipe, hub, ENGINES[bundle.manifest.toolchain.engine].attention).exportable
    return record(exportable, exportable.cases(recipe.suite), lambda done, total: None)
