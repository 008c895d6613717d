"""transformers' key and value cache as flat tensors, under any of its APIs.

A model may build a cache that keeps only a window of the past, or states of another kind. A graph gets all of the past
in every layer, which is the same function as long as what a layer keeps is its keys and values and the mask does the
rest.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onnxport.exporters.errors import SignatureError
from onnxport.exporters.own_failure import own_failure

# Keyword of forward and name of the output, newest release first.
_NAMES = ("cache", "past_key_values")
# Layers that keep the keys and values of all positions, or of the last ones, and nothing else.
_LAYERS = ("DynamicLayer", "DynamicSlidingWindowLayer")
_PROBE_TOKENS = 3


@dataclass(frozen=True)
class LayerCache:
    """What a layer keeps: `key` and `value` are heads and size of a head, [batch, heads, length, size].

    `window` is how many positions it looks back at most; None: all.
    """

    index: int
    key: tuple[int, int]
    value: tuple[int, int]
    window: int | None


def cache_keyword(model: nn.Module) -> str:
    """Returns the keyword by which forward takes its cache.

    Raises:
        SignatureError: it takes none.
    """
    accepted = inspect.signature(model.forward).parameters
    found = next((name for name in _NAMES if name in accepted), None)
    if found is None:
        raise SignatureError(
            f"{type(model).__name__} takes {', '.join(accepted)}: no key and value cache, so no graph of it can "
            "generate a token at a time; export it without one (--task feature-extraction)"
        )
    return found


def probe_cache(model: nn.Module) -> tuple[LayerCache, ...]:
    """Runs the model and returns what each layer keeps, without layers that keep nothing (those that share a cache).

    Raises:
        SignatureError: the model cannot run on token ids and a mask, or keeps something else than keys and values.
    """
    keyword = cache_keyword(model)
    ids = torch.ones((2, _PROBE_TOKENS), dtype=torch.int64)
    shapes = f"input_ids and attention_mask of shape {list(ids.shape)}"
    with own_failure(f"{type(model).__name__} itself fails on {shapes} with use_cache=True"):
        result = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=True)
    cache = result.get(keyword)
    kinds = list(dict.fromkeys(type(layer).__name__ for layer in getattr(cache, "layers", ())))
    if type(cache).__name__ != "DynamicCache" or not kinds or set(kinds) - set(_LAYERS):
        seen = "no cache" if cache is None else type(cache).__name__ + (f" of {', '.join(kinds)}" if kinds else "")
        raise SignatureError(
            f"{type(model).__name__} keeps {seen} between steps; onnxport can hand on a DynamicCache of "
            f"{' and '.join(_LAYERS)}: keys and values of positions. Export it without a cache "
            "(--task feature-extraction)"
        )
    found = [_layer(model, index, layer) for index, layer in enumerate(cache.layers)]
    return tuple(layer for layer in found if layer is not None)


def _layer(model: nn.Module, index: int, layer: Any) -> LayerCache | None:
    if not isinstance(layer.keys, Tensor):
        return None
    for tensor in (layer.keys, layer.values):
        if tensor.ndim != 4 or tensor.shape[0] != 2:
            raise SignatureError(
                f"layer {index} of {type(model).__name__} keeps tensors of shape {list(tensor.shape)} for 2 rows of "
                f"{_PROBE_TOKENS} tokens; expected [batch, heads, length, size]"
            )
    key, value = ((int(t.shape[1]), int(t.shape[3])) for t in (layer.keys, layer.values))
    window = getattr(layer, "sliding_window", None)
    return LayerCache(index, key, value, None if window is None else int(window))


def make_cache(pairs: Sequence[tuple[int, Tensor, Tensor]]) -> Any:
    """Returns a DynamicCache that holds all of the past: layer index, keys and values, in the order of the layers.

    Without any it is empty; a layer is made when something is put into it.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer

    cache = DynamicCache()
    layers = [DynamicLayer() for _ in range(pairs[-1][0] + 1 if pairs else 0)]
    for index, keys, values in pairs:
        # `update` would concatenate them with an empty tensor.
        layer = layers[index]
        layer.keys, layer.values = keys, values
        layer.dtype, layer.device, layer.is_initialized = keys.dtype, keys.device, True
    cache.layers.extend(layers)
    return cache
