"""A decoder-only model: one graph for the prompt, with no past, and for the steps that follow it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onnxport.exporters.checkpoint import Checkpoint
from onnxport.exporters.components.component import make_component
from onnxport.exporters.components.experts import traceable_experts
from onnxport.exporters.components.key_value_cache import LayerCache, cache_keyword, make_cache, probe_cache
from onnxport.exporters.components.single import MODEL
from onnxport.exporters.exportable import Arrays, Exportable, to_tensors
from onnxport.exporters.generation.decoder_loop import PAST, PRESENT
from onnxport.exporters.inputs.decoder import decoder_inputs


def components(checkpoint: Checkpoint) -> dict[str, Exportable]:
    """See `split`.

    Raises:
        SignatureError: the model keeps something between steps that is no key and value cache.
    """
    layers = probe_cache(checkpoint.model)
    module = CachedDecoder(checkpoint.model, layers).eval()
    maker = decoder_inputs(checkpoint, layers, module.takes_positions, module.outputs_of)
    task = checkpoint.task
    return {MODEL: make_component(checkpoint, module, maker, outputs=task.outputs, decisions=task.decisions)}


class CachedDecoder(nn.Module):
    """A decoder whose cache goes in and out as tensors, `past_key_values.N.key` and `present.N.key`."""

    def __init__(self, model: nn.Module, layers: Sequence[LayerCache]) -> None:
        super().__init__()
        self.model = model
        self._layers = tuple(layer.index for layer in layers)
        self._keyword = cache_keyword(model)
        self.takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **rest: Any) -> dict[str, Any]:
        """Returns logits and the cache, after what was in it and the new tokens.

        Args:
            input_ids: int64 [batch, sequence], the new tokens.
            attention_mask: int64 [batch, past_sequence+sequence].
            rest: the cache, float [batch, heads, past_sequence, head size], or none of it: nothing is past;
                position_ids int64 [batch, sequence], where the model takes them; and other options of the model.
        """
        names = [(index, f"{PAST}{index}.key", f"{PAST}{index}.value") for index in self._layers]
        if names[0][1] not in rest:
            names = []
        cache = make_cache([(index, rest.pop(key), rest.pop(value)) for index, key, value in names])
        with traceable_experts(self.model):
            result = self.model(
                input_ids=input_ids, attention_mask=attention_mask, use_cache=True, **{self._keyword: cache}, **rest
            )
        kept = {name: result.get(name) for name in ("logits", "hidden_states", "attentions")}
        for index in self._layers:
            layer = cache.layers[index]
            kept |= {f"{PRESENT}{index}.key": layer.keys, f"{PRESENT}{index}.value": layer.values}
        return kept

    def outputs_of(self, inputs: Arrays) -> Mapping[str, np.ndarray]:
        """Runs the module on arrays."""
        with torch.inference_mode():
            outputs = self(**to_tensors(inputs))
        return {name: value.numpy() for name, value in outputs.items() if isinstance(value, Tensor)}
