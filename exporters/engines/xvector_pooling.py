"""Mean and spread over the frames of each row that are real: transformers loops over the rows of a padded batch."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn


def forward(self: Any, attention_mask: Tensor | None = None, output_hidden_states: bool = False, **inputs: Any) -> Any:
    """The speaker's embedding, float [batch, size], and its logits, of a Wav2Vec2ForXVector or one of its kin.

    Args:
        attention_mask: int64 [batch, samples], 1 where the sound is: on the left. None: everywhere.
        output_hidden_states: return what every layer makes. They are returned unasked too where the embedding is made
            of all layers, which from transformers 5 on the method keeps to itself.
        inputs: the sound and other options of the base model.
    """
    if attention_mask is None:
        return type(self).forward(self, output_hidden_states=output_hidden_states, **inputs)
    weighted = self.config.use_weighted_layer_sum
    base = getattr(self, self.base_model_prefix)
    made = base(attention_mask=attention_mask, output_hidden_states=weighted or output_hidden_states, **inputs)
    states = made.last_hidden_state
    if weighted:
        weights = nn.functional.softmax(self.layer_weights, dim=-1)
        states = (torch.stack(made.hidden_states, dim=1) * weights.view(-1, 1, 1)).sum(dim=1)
    states = self.projector(states)
    for layer in self.tdnn:
        states = layer(states)

    frames = states.shape[1]
    lengths = self._get_tdnn_output_lengths(self._get_feat_extract_output_lengths(attention_mask.sum(dim=1)))
    # As a slice takes them: a negative one is counted from the end.
    lengths = torch.where(lengths < 0, lengths + frames, lengths).clamp(min=0, max=frames)[:, None]
    # Sums over all frames and squares may be more than float16 holds, where mean and spread are not.
    wide = states.to(torch.promote_types(states.dtype, torch.float32))
    real = (torch.arange(frames, device=states.device)[None, :] < lengths)[:, :, None].to(wide.dtype)
    mean = (wide * real).sum(dim=1) / lengths
    variance = (((wide - mean[:, None, :]) * real) ** 2).sum(dim=1) / (lengths - 1)
    embeddings = self.feature_extractor(torch.cat([mean, variance.sqrt()], dim=-1).to(states.dtype))
    return sys.modules[type(self).__module__].XVectorOutput(
        logits=self.classifier(embeddings),
        embeddings=embeddings,
        hidden_states=made.hidden_states,
        attentions=made.attentions,
    )
