"""What a model generated greedily, kept so that a bundle can be held against it without the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxport.verify import save_golden
from onnxport.verify.cases import Case
from onnxport.verify.errors import VerificationError
from onnxport.verify.golden import load_golden

CASE = "generate.greedy"
"""The case that the comparison is filed under."""


@dataclass(frozen=True)
class Generation:
    """What a model generated, with the runners-up of every step.

    Attributes:
        loop: a row of `generation.GENERATORS`.
        prompt: all that its loop starts from, by name; the batch is the first axis of each array.
        tokens: int64 [batch, steps], what the model chose.
        top_ids, top_logits: int64 and float32 [batch, steps, k], the largest logits of each step, largest first.
    """

    loop: str
    prompt: Mapping[str, np.ndarray]
    tokens: np.ndarray
    top_ids: np.ndarray
    top_logits: np.ndarray

    @property
    def steps(self) -> int:
        """Number of tokens that were generated in every row."""
        return int(self.tokens.shape[1])


def save_generation(path: Path, generation: Generation) -> None:
    """Writes everything but `loop`, which the manifest records. Equal content gives equal bytes."""
    outputs = {name: getattr(generation, name) for name in ("tokens", "top_ids", "top_logits")}
    path.parent.mkdir(exist_ok=True)
    save_golden(path, [Case(CASE, generation.prompt)], {CASE: outputs})


def load_generation(path: Path, loop: str) -> Generation:
    """Reads what `save_generation` wrote.

    Raises:
        VerificationError: the file is missing or corrupt, or holds something else.
    """
    cases, recorded = load_golden(path)
    if [case.name for case in cases] != [CASE]:
        raise VerificationError(f"{path} holds no generation ({CASE}). Export again, or verify against the source.")
    outputs = recorded.outputs[CASE]
    try:
        return Generation(loop, cases[0].inputs, outputs["tokens"], outputs["top_ids"], outputs["top_logits"])
    except KeyError as e:
        raise VerificationError(f"{path} lacks {e} of a generation. Export again.") from e
