"""The common ground of checkpoints and plain modules: a torch module, how to feed it, and what to call things."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onnxport.exporters.choice import Choice
from onnxport.exporters.errors import SignatureError
from onnxport.exporters.graph import FusionHints
from onnxport.exporters.manifest import Preprocessing, Source
from onnxport.exporters.suggestion import expected_one_of
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, Dim, Vocabulary

EXTRA_OUTPUTS = ("hidden_states", "attentions")
"""What most transformers models return when asked."""

Arrays = dict[str, np.ndarray]
Sampler = Callable[[Mapping[str, int], np.random.Generator], Arrays]
"""Makes valid inputs at the given size of each axis."""


@dataclass(frozen=True)
class Exportable:
    """A module in eval mode with everything an engine and a verifier need to know of it.

    Attributes:
        module: unpatched, in eval mode; called with keyword arguments.
        inputs: input name to one entry per dimension, an axis name or a fixed size; in the order of the graph.
        axes: range of every named axis; a static one is fixed (min equals max) and keeps its name.
        example: sizes of the axes at which the module is traced, all different and at least 2.
        sample: makes inputs at any sizes.
        cases: makes the verification cases of a suite.
        left_out: names cases of real inputs that a suite has and that these inputs cannot be made for, with the reason.
        outputs: outputs kept, in order; None keeps every tensor.
        dropped_outputs: outputs that are left out because the checkpoint has no weights for them.
        extra_outputs: what transformers returns when asked ("hidden_states"), kept besides `outputs`.
        options: keyword arguments of every call besides the inputs.
        mask: the input whose zeros mark padding.
        vocabularies: of inputs that hold ids, what they may hold.
        decisions: outputs whose argmax a user acts on, with the axis.
        notes: things a person should know, one line each.
        choice: its graph is made of those of other components; None: an engine makes it of the module.
    """

    module: nn.Module
    inputs: Mapping[str, tuple[Dim, ...]]
    axes: Mapping[str, AxisRange]
    example: Mapping[str, int]
    sample: Sampler
    cases: Callable[[str], list[Case]]
    source: Source
    outputs: tuple[str, ...] | None = None
    dropped_outputs: frozenset[str] = frozenset()
    extra_outputs: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    mask: str | None = None
    vocabularies: Mapping[str, Vocabulary] = field(default_factory=dict)
    decisions: Mapping[str, int] = field(default_factory=dict)
    hints: FusionHints = field(default_factory=FusionHints)
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    notes: tuple[str, ...] = ()
    choice: Choice | None = None
    left_out: Callable[[str], Mapping[str, str]] = lambda suite: {}

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Calls the module by keyword and returns the outputs that are kept, by name.

        Raises:
            SignatureError: an output is missing, or something among them is no tensor.
        """
        return self.named(self.call(inputs))

    def call(self, inputs: Mapping[str, Tensor]) -> Any:
        """Calls the module by keyword and returns what it returns; whatever it raises is its own.

        Raises:
            SignatureError: the module cannot be asked for an extra output.
        """
        for name in self.extra_outputs:
            _require_option(self.module, name)
        options = {**self.options, **{f"output_{name}": True for name in self.extra_outputs}}
        return self.module(**inputs, **options)

    def named(self, returned: Any) -> dict[str, Tensor]:
        """Returns the outputs that are kept, by name, of what `call` returned; raises like `run`."""
        named = name_outputs(returned)
        names = self.outputs if self.outputs is not None else tuple(named)
        missing = [name for name in names if name not in named]
        if missing:
            raise SignatureError(f"the module returns {', '.join(named)}; expected an output {missing[0]!r}")
        extras = [name for extra in self.extra_outputs for name in _belonging_to(extra, named)]
        kept = [name for name in dict.fromkeys((*names, *extras)) if name not in self.dropped_outputs]
        return {name: named[name] for name in kept}


def name_outputs(result: Any) -> dict[str, Tensor]:
    """Flattens what a module returns into named tensors.

    A mapping (transformers' ModelOutput) keeps its keys, without those that are None; a tuple inside it is numbered
    ("hidden_states.0"). A lone tensor is "output", a tuple "output_0", "output_1", nested tuples counted through. What
    a part of the model returned, a ModelOutput inside a ModelOutput ("vision_model_output"), is no output of the whole.

    Raises:
        SignatureError: something that is no tensor.
    """
    if isinstance(result, Mapping):
        pairs = [
            (str(key), value)
            for key, value in result.items()
            if value is not None and not (_is_model_output(result) and _is_model_output(value))
        ]
        named = [
            (key if isinstance(value, Tensor) else f"{key}.{i}", leaf)
            for key, value in pairs
            for i, leaf in enumerate(_leaves(value))
        ]
        if len(dict(named)) < len(named):
            raise SignatureError(
                f"two outputs of the module have one name among {', '.join(name for name, _ in named)}"
            )
        return dict(named)
    if isinstance(result, Tensor):
        return {"output": result}
    return {f"output_{i}": leaf for i, leaf in enumerate(_leaves(result))}


def _belonging_to(extra: str, named: Mapping[str, Tensor]) -> list[str]:
    names = [name for name in named if name.split(".")[0] == extra]
    if not names:
        raise _unknown_output(extra)
    return names


def _require_option(module: nn.Module, extra: str) -> None:
    """A forward that takes no such option (most of transformers 4 have no **kwargs) has no such output."""
    parameters = inspect.signature(module.forward).parameters
    if f"output_{extra}" not in parameters and all(one.kind is not one.VAR_KEYWORD for one in parameters.values()):
        raise _unknown_output(extra)


def _unknown_output(extra: str) -> SignatureError:
    if extra in EXTRA_OUTPUTS:
        return SignatureError(f"--output {extra}: the model returns no such output; leave it out")
    return SignatureError(
        f"--output {extra}: the model returns no such output; {expected_one_of(extra, EXTRA_OUTPUTS)}"
    )


def _is_model_output(value: Any) -> bool:
    """Whether it is transformers' ModelOutput, told without importing transformers."""
    return any(
        base.__name__ == "ModelOutput" and base.__module__.split(".")[0] == "transformers"
        for base in type(value).__mro__
    )


def _leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _leaves(item)]
    raise SignatureError(
        f"the module returns a {type(value).__name__} among its outputs; expected tensors, in tuples or a mapping"
    )


def to_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Copies numpy inputs into tensors: a module may change its inputs in place, and a case is run many times."""
    return {name: torch.from_numpy(array.copy(order="C")) for name, array in arrays.items()}
