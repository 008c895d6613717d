"""The attention of Longformer and LED for texts of any length, with any global attention.

transformers takes one way where no token has global attention (2 in the mask) and another where some have, and its
windows overlap by strides, which a trace keeps as numbers. Here the tokens with global attention are gathered, as many
as the row with the most of them has, one at least, and neighbouring blocks are put together.
"""

from __future__ import annotations

import math
import sys
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn


def encode(
    self: Any,
    hidden_states: Tensor,
    attention_mask: Tensor,
    padding_len: int = 0,
    output_attentions: bool = False,
    output_hidden_states: bool = False,
    **options: Any,
) -> Any:
    """Runs the layers without asking whether any token has global attention.

    Args:
        hidden_states: float [batch, padded sequence, hidden].
        attention_mask: float [batch, padded sequence]: negative where nothing is, positive at global attention.
        padding_len: how many positions at the end were added to fill the last window.
    """
    if output_attentions:  # their number of columns, and whether there are global ones, depend on the mask
        return type(self).forward(
            self,
            hidden_states,
            attention_mask=attention_mask,
            padding_len=padding_len,
            output_attentions=True,
            output_hidden_states=output_hidden_states,
            **options,
        )
    states = [hidden_states]
    for layer in self.layer:
        made = layer(
            states[-1],
            attention_mask=attention_mask,
            is_index_masked=attention_mask < 0,
            is_index_global_attn=attention_mask > 0,
            output_attentions=False,
        )
        states.append(made[0])
    states = [state[:, : state.shape[1] - padding_len] for state in states]
    result = sys.modules[type(self).__module__].LongformerBaseModelOutput
    return result(last_hidden_state=states[-1], hidden_states=tuple(states) if output_hidden_states else None)


def encode_for_a_decoder(self: Any, input_ids: Tensor, attention_mask: Tensor, **options: Any) -> Any:
    """As `encode`, of LED, whose encoder embeds and pads the text itself.

    Args:
        input_ids: int64 [batch, sequence].
        attention_mask: int64 [batch, sequence]: 0, 1 or 2.
        options: None or false, but for `return_dict`.
    """
    if any(value is not None and value is not False for name, value in options.items() if name != "return_dict"):
        return type(self).forward(self, input_ids, attention_mask, **options)
    module, length = sys.modules[type(self).__module__], input_ids.shape[1]
    _, _, attention_mask, states = self._pad_to_window_size(
        input_ids=input_ids,
        attention_mask=attention_mask,
        inputs_embeds=self.embed_tokens(input_ids),
        pad_token_id=self.config.pad_token_id,
    )
    mask = module._prepare_4d_attention_mask_inverted(attention_mask, states.dtype)[:, 0, 0, :]
    states = self.layernorm_embedding(states + self.embed_positions(states.shape[:2]))
    for layer in self.layers:
        unused = {name: None for name in ("layer_head_mask",) if name in signature(layer.forward).parameters}
        states = layer(states, attention_mask=mask, is_index_masked=mask < 0, is_index_global_attn=mask > 0, **unused)[
            0
        ]
    return module.LEDEncoderBaseModelOutput(last_hidden_state=states[:, :length])


def attend(
    self: Any,
    hidden_states: Tensor,
    attention_mask: Tensor,
    is_index_masked: Tensor,
    is_index_global_attn: Tensor,
    output_attentions: bool = False,
    **options: Any,
) -> Any:
    """Attends to the window around each token and to the tokens with global attention, and from these to all.

    Args:
        hidden_states: float [batch, sequence, hidden]; the sequence is a multiple of the window.
        attention_mask: float [batch, sequence], 0 where a token has the attention of its window only.
        is_index_masked, is_index_global_attn: bool [batch, sequence].
    """
    if output_attentions:
        return type(self).forward(
            self,
            hidden_states,
            attention_mask=attention_mask,
            is_index_masked=is_index_masked,
            is_index_global_attn=is_index_global_attn,
            output_attentions=True,
            **options,
        )
    lowest = torch.finfo(hidden_states.dtype).min
    window = self.one_sided_attn_window_size

    def in_heads(states: Tensor) -> Tensor:
        return states.view(*states.shape[:2], self.num_heads, self.head_dim)

    query = in_heads(self.query(hidden_states) / math.sqrt(self.head_dim))
    key, value = in_heads(self.key(hidden_states)), in_heads(self.value(hidden_states))
    elsewhere = (attention_mask != 0)[:, :, None, None].type_as(query) * lowest
    near = self._sliding_chunks_query_key_matmul(query, key, window)
    near = near + self._sliding_chunks_query_key_matmul(torch.ones_like(elsewhere), elsewhere, window)

    # Tokens with global attention, in order, and in rows that have fewer of them some of the others.
    length = is_index_global_attn.shape[1]
    places = torch.arange(length, device=near.device) + length * (~is_index_global_attn).long()
    count = is_index_global_attn.long().sum(dim=1).max().clamp(min=1)
    chosen = places.sort(dim=1).indices[:, :count]
    is_global = is_index_global_attn.gather(1, chosen)

    def at_chosen(states: Tensor) -> Tensor:
        index = chosen.reshape(*chosen.shape, *[1] * (states.dim() - 2))
        return states.gather(1, index.expand(-1, -1, *states.shape[2:]))

    far = torch.einsum("blhd,bghd->blhg", query, at_chosen(key))
    far = far.masked_fill(~is_global[:, None, None, :], lowest)
    shares = nn.functional.softmax(torch.cat([far, near], dim=-1), dim=-1, dtype=torch.float32)
    shares = shares.masked_fill(is_index_masked[:, :, None, None], 0.0).type_as(near)
    columns = 2 * window + 1
    seen = torch.einsum("blhg,bghd->blhd", shares[..., :-columns], at_chosen(value))
    seen = (seen + _in_windows(self, shares[..., -columns:], value, window)).flatten(2)

    query = in_heads(self.query_global(at_chosen(hidden_states)) / math.sqrt(self.head_dim))
    key, value = in_heads(self.key_global(hidden_states)), in_heads(self.value_global(hidden_states))
    scores = torch.einsum("bghd,blhd->bghl", query, key).masked_fill(is_index_masked[:, None, None, :], lowest)
    shares = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).type_as(scores)
    everything = torch.einsum("bghl,blhd->bghd", shares, value).flatten(2)
    everything = torch.where(is_global[:, :, None], everything, at_chosen(seen))
    return (seen.scatter(1, chosen[:, :, None].expand(-1, -1, seen.shape[2]), everything),)


def chunk(self: Any, hidden_states: Tensor, window_overlap: int, onnx_export: bool = False) -> Tensor:
    """Two neighbouring blocks each: [rows, sequence, size] to [rows, sequence / overlap - 1, 2 * overlap, size]."""
    blocks = hidden_states.view(hidden_states.size(0), -1, window_overlap, hidden_states.size(2))
    return torch.cat([blocks[:, :-1], blocks[:, 1:]], dim=2)


def _in_windows(self: Any, shares: Tensor, value: Tensor, window: int) -> Tensor:
    """What each position takes from its window: float [batch, sequence, heads, head size].

    Args:
        shares: [batch, sequence, heads, 2 * window + 1].
        value: [batch, sequence, heads, head size].
        window: how far a position sees to each side.
    """
    batch, length, heads, size = value.shape
    shares = shares.transpose(1, 2).reshape(batch * heads, -1, window, 2 * window + 1)
    value = value.transpose(1, 2).reshape(batch * heads, length, size)
    blocks = nn.functional.pad(value, (0, 0, window, window)).view(batch * heads, -1, window, size)
    windows = torch.cat([blocks[:, :-2], blocks[:, 1:-1], blocks[:, 2:]], dim=2)
    context = torch.einsum("bcwd,bcdh->bcwh", self._pad_and_diagonalize(shares), windows)
    return context.reshape(batch, heads, length, size).transpose(1, 2)
