"""Records what a decoder-only model generates for prompts of mixed lengths, padded on the left."""

from __future__ import annotations

import torch

from onnxport.exporters.checkpoint import Checkpoint
from onnxport.exporters.components.decoder import CachedDecoder
from onnxport.exporters.components.key_value_cache import probe_cache
from onnxport.exporters.errors import SignatureError
from onnxport.exporters.generation.generation import Generation
from onnxport.exporters.generation.greedy import STEPS, generate_greedily
from onnxport.exporters.inputs.decoder import decoder_inputs


def record(checkpoint: Checkpoint) -> Generation:
    """Generates with the checkpoint's model as it is, and with whatever cache it makes by itself.

    Raises:
        SignatureError: static axes leave no room for a prompt and what follows it.
    """
    layers = probe_cache(checkpoint.model)
    module = CachedDecoder(checkpoint.model, layers)
    maker = decoder_inputs(checkpoint, layers, module.takes_positions, module.outputs_of)
    axes = maker.axes_named
    if maker.static.get(axes.sequence, 1) != 1 or axes.past in maker.static:
        raise SignatureError(
            f"axis {axes.sequence} or {axes.past} has a fixed size, and generation reads a prompt and then a token at "
            "a time"
        )
    limit = maker.longest_proven
    steps = STEPS if limit is None else min(STEPS, limit // 2)
    ids, mask = maker.prompts(min(maker.longest, maker.longest if limit is None else limit - steps), pass_window=True)
    prompt = {"input_ids": ids, "attention_mask": mask}
    given = {name: torch.from_numpy(array.copy()) for name, array in prompt.items()}
    return generate_greedily(
        checkpoint.model, "decoder", given, prompt=prompt, steps=steps, pad_token_id=maker.text.pad_token_id
    )
