"""A dual encoder as two graphs: what embeds texts, and what embeds images, each of use without the other."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

from onnxport.exporters.checkpoint import Checkpoint
from onnxport.exporters.components.component import make_component
from onnxport.exporters.exportable import Exportable
from onnxport.exporters.inputs import makers_of
from onnxport.exporters.inputs.combined import apart, tower_config

TOWERS = {
    "text": ("text_model", "get_text_features", "text_embeds"),
    "image": ("vision_model", "get_image_features", "image_embeds"),
}
"""Kind of input to the component, the method that computes it, and the name of its output, as Optimum and
transformers.js know them."""


class Tower(nn.Module):
    """One tower of a dual encoder, with its projection: what the model's own method for it returns.

    The states before the projection are among it since transformers 5.
    """

    def __init__(self, model: nn.Module, method: str, output: str) -> None:
        super().__init__()
        self.model = model
        self._method = method
        self._output = output

    def forward(self, **inputs: Tensor) -> dict[str, Tensor]:
        features: Any = getattr(self.model, self._method)(**inputs)
        if isinstance(features, Tensor):  # transformers 4
            return {self._output: features}
        return {self._output: features.pooler_output, "last_hidden_state": features.last_hidden_state}


def is_dual_encoder(model: nn.Module) -> bool:
    """Whether a model embeds texts and images apart."""
    return all(hasattr(model, method) for _, method, _ in TOWERS.values())


def components(checkpoint: Checkpoint) -> dict[str, Exportable]:
    """See `split`."""
    model = checkpoint.model
    accepted = {
        name for _, method, _ in TOWERS.values() for name in inspect.signature(getattr(model, method)).parameters
    }
    makers = makers_of(inspect.signature(model.forward).parameters.keys() & accepted)
    made = {}
    for kind, maker in apart(checkpoint, makers).items():
        component, method, output = TOWERS[kind]
        made[component] = make_component(
            tower_config(checkpoint, kind),
            Tower(model, method, output).eval(),
            maker,
            outputs=(output,),
            decisions={},
        )
    return made
