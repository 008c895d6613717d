"""Greedy generation: a bundle must say token for token what transformers' `generate` says.

Two functions for each way of dividing a model into graphs, in one literal table: a *recorder*, which needs the model,
and a *loop*, which runs the graphs of a bundle with numpy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from onnxport.exporters.errors import BundleError
from onnxport.exporters.suggestion import expected_one_of
from onnxport.verify.contract import TensorSpec
from onnxport.verify.import_target import import_target

if TYPE_CHECKING:
    from onnxport.exporters.checkpoint import Checkpoint
    from onnxport.exporters.generation.generation import Generation

Arrays = Mapping[str, np.ndarray]

Choose = Callable[[np.ndarray], np.ndarray]
"""Logits of the last position, float [batch, vocabulary], to the ids that follow, int64 [batch]."""


@dataclass(frozen=True)
class LoopGraph:
    """A component as a loop sees it: what it takes, and how it is run."""

    inputs: tuple[TensorSpec, ...]
    run: Callable[[Arrays], Arrays]


class Loop(Protocol):
    """Runs the graphs of a model, by component name, `steps` times in a row.

    It calls `choose` once for every step, with the logits of each row's last position, and feeds what it returns.
    `prompt` is what the recorder kept. A loop knows nothing of torch.
    """

    def __call__(self, graphs: Mapping[str, LoopGraph], prompt: Arrays, steps: int, choose: Choose) -> None: ...


@dataclass(frozen=True)
class _Generator:
    """`recorder`: "module:function" from a Checkpoint to its Generation; `loop`: "module:function", a `Loop`.

    `others`: a component that takes the place of others, where a model has it, to the loop that runs it.
    """

    recorder: str
    loop: str
    others: Mapping[str, str] = field(default_factory=dict)


_HERE = "onnxport.exporters.generation"
GENERATORS: Mapping[str, _Generator] = {
    "decoder": _Generator(f"{_HERE}.decoder_recorder:record", f"{_HERE}.decoder_loop:generate"),
    "encoder_decoder": _Generator(
        f"{_HERE}.encoder_decoder_recorder:record",
        f"{_HERE}.encoder_decoder_loop:generate",
        {"decoder_model_merged": f"{_HERE}.merged_decoder_loop:generate"},
    ),
}
"""A row of `components.SPLITS` to how its graphs generate."""


def recorder_of(checkpoint: Checkpoint) -> Callable[[], Generation] | None:
    """Returns what records the greedy generation of a checkpoint's model; None: its task does not generate."""
    name = checkpoint.head.split
    if name not in GENERATORS:
        return None
    record: Callable[[Checkpoint], Generation] = import_target(GENERATORS[name].recorder)
    return lambda: record(checkpoint)


def loops_of(name: str, components: Collection[str]) -> dict[str, Loop]:
    """Returns the loops of a row of GENERATORS, by the component that its result is filed under.

    The last component, or the one that takes the place of others.

    Raises:
        BundleError: there is no such row; a newer release may have made the bundle.
    """
    if name not in GENERATORS:
        raise BundleError(f"bundle.json names the generation loop {name!r}; {expected_one_of(name, GENERATORS)}")
    row = GENERATORS[name]
    others = [component for component in components if component in row.others]
    last = [component for component in components if component not in others][-1]
    targets = {last: row.loop, **{component: row.others[component] for component in others}}
    return {component: import_target(target) for component, target in targets.items()}
