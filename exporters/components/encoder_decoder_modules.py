"""The graphs of an encoder-decoder model as modules: flat tensors in and out, transformers' cache objects inside.

Each holds the whole model, so that its parameters keep their names; an engine writes only those that are used. The
model's own forward is what runs, with the encoder's states given: what it does to them and to the mask on the way to
the decoder (a projection, the mask's length after strided convolutions) happens in the decoder's graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from onnxport.exporters.global_attention import has_global_attention

HIDDEN = "last_hidden_state"
LOGITS = "logits"
IDS = "input_ids"
STATES = "encoder_hidden_states"
STATES_MASK = "encoder_attention_mask"

KINDS = ("decoder.key", "decoder.value", "encoder.key", "encoder.value")
"""What a layer caches, in the order of the graph: self-attention, then cross-attention."""


def past_name(layer: int, kind: str) -> str:
    """The input that takes what a step before returned: "past_key_values.0.decoder.key"."""
    return f"past_key_values.{layer}.{kind}"


def present_name(layer: int, kind: str) -> str:
    """The output with what this step leaves in the cache: "present.0.decoder.key"."""
    return f"present.{layer}.{kind}"


class Encoder(nn.Module):
    """What the model reads, to its hidden states: float [batch, encoder_sequence, hidden]."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> dict[str, Tensor]:
        encoder: Any = self.model.get_encoder()  # type: ignore[operator]  # a method, to nn.Module an attribute
        return {HIDDEN: encoder(**inputs, return_dict=True)[HIDDEN]}


class _Decoder(nn.Module):
    """What both steps of a decoder ask the whole model for."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._has_global_attention = has_global_attention(model)

    def decode(self, input_ids: Tensor, states: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        """Returns the logits, float [batch, sequence, vocabulary], and leaves the keys and values in the cache."""
        from transformers.modeling_outputs import BaseModelOutput

        states_alone: Any = BaseModelOutput(last_hidden_state=states)
        # What the encoders of mixtures of experts and of Moonshine hand on besides, and the decoder can do without.
        states_alone.router_logits = states_alone.attention_mask = None

        if mask is not None and self._has_global_attention:
            # The encoder's 2, global attention, is a real token as any other here: transformers 4 takes it for padding.
            mask = mask.clamp(max=1)
        masked: Mapping[str, Tensor] = {} if mask is None else {"attention_mask": mask}
        taken = {cache_argument(self.model): cache}
        logits: Tensor = self.model(
            encoder_outputs=states_alone,
            decoder_input_ids=input_ids,
            use_cache=True,
            return_dict=True,
            **masked,
            **taken,
        )[LOGITS]
        return logits


class FirstStep(_Decoder):
    """The decoder without a cache: the first tokens, and the keys and values of all layers."""

    def forward(
        self, input_ids: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor | None = None
    ) -> dict[str, Tensor]:
        cache = empty_cache()
        logits = self.decode(input_ids, encoder_hidden_states, encoder_attention_mask, cache)
        return {LOGITS: logits, **_present(cache, KINDS)}


class NextStep(_Decoder):
    """The decoder with a cache: further tokens. Cross-attention reads the keys and values it is given.

    Args:
        model: the whole model.
        hidden_size: of the encoder's states, which are not needed any more and not given.
    """

    def __init__(self, model: nn.Module, hidden_size: int) -> None:
        super().__init__(model)
        self.hidden_size = hidden_size

    def forward(
        self, input_ids: Tensor, encoder_attention_mask: Tensor | None = None, **past: Tensor
    ) -> dict[str, Tensor]:
        cache = empty_cache()
        for layer in range(len(past) // len(KINDS)):
            own_key, own_value, key, value = (past[past_name(layer, kind)] for kind in KINDS)
            cache.self_attention_cache.update(own_key, own_value, layer)
            cache.cross_attention_cache.update(key, value, layer)
            cache.is_updated[layer] = True
        key = past[past_name(0, "encoder.key")]
        # Layers ask whether there are states, and for their length; none reads them where the cache has what they gave.
        states = key.new_zeros(()).expand(key.shape[0], key.shape[2], self.hidden_size)
        logits = self.decode(input_ids, states, encoder_attention_mask, cache)
        return {LOGITS: logits, **_present(cache, KINDS[:2])}


def empty_cache() -> Any:
    """transformers' cache of self-attention and cross-attention, with nothing in it."""
    from transformers import DynamicCache, EncoderDecoderCache

    # Without a config: a layer is made when something is put into it, as many as the decoder has.
    return EncoderDecoderCache(DynamicCache(), DynamicCache())


def cache_argument(model: nn.Module) -> str:
    """The keyword that the model takes its cache by: `past_key_values` once, `cache` in later releases of 5."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def _present(cache: Any, kinds: tuple[str, ...]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for number, own in enumerate(cache.self_attention_cache.layers):
        cross = cache.cross_attention_cache.layers[number]
        found = dict(zip(KINDS, (own.keys, own.values, cross.keys, cross.values), strict=True))
        tensors |= {present_name(number, kind): found[kind] for kind in kinds}
    return tensors


def run(module: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Calls a module of this file without recording gradients."""
    with torch.inference_mode():
        outputs: dict[str, Tensor] = module(**inputs)
    return outputs
