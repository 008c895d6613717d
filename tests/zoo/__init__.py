"""Tiny checkpoints of real architectures, weights N(0, 0.3): what the tests export and what docs/coverage.md lists.

Each file has the rows of one family. A row writes a whole checkpoint: weights, config, tokenizer, processor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class TinyModel:
    """One architecture and task.

    Attributes:
        architecture: transformers' model type ("vit").
        task: what it is exported for.
        write: writes the checkpoint into an empty folder.
        recipe: what the export is asked besides, as keywords of `Recipe`.
        note: what a reader of the table should know.
    """

    architecture: str
    task: str
    write: Callable[[Path], None]
    recipe: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def name(self) -> str:
        """ "vit image-classification": the row's name in tests and in the table."""
        return f"{self.architecture} {self.task}"


def randomise(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Draws every parameter from N(0, 0.3); normalisation weights from N(1, 0.3)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
            if "norm" in name.lower() and name.endswith("weight"):
                parameter.add_(1.0)
    return module.eval()
