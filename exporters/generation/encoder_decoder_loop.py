"""Generation through an encoder and a decoder of two graphs: the first step, and the steps with a cache."""

from __future__ import annotations

from collections.abc import Mapping

from onnxport.exporters.generation import Arrays, Choose, LoopGraph

PAST, PRESENT = "past_key_values.", "present."
"""A cache tensor is the input `past_key_values.0.decoder.key` and the output `present.0.decoder.key`."""
START = "decoder_input_ids"
"""In the prompt: the tokens that the decoder begins with."""
MASKED = "encoder_attention_mask"


def generate(graphs: Mapping[str, LoopGraph], prompt: Arrays, steps: int, choose: Choose) -> None:
    """See `generation.Loop`. The prompt has what the encoder takes, and decoder_input_ids int64 [batch, 1].

    The keys and values of cross-attention come from the first step and stay; those of self-attention are each step's.
    """
    encoder, first, further = (graphs[name] for name in ("encoder_model", "decoder_model", "decoder_with_past_model"))
    states = encoder.run({spec.name: prompt[spec.name] for spec in encoder.inputs})["last_hidden_state"]
    given = {"input_ids": prompt[START], "encoder_hidden_states": states}
    if "attention_mask" in prompt:
        given[MASKED] = prompt["attention_mask"]
    outputs = first.run({spec.name: given[spec.name] for spec in first.inputs})
    cache = {name: array for name, array in outputs.items() if name.startswith(PRESENT)}
    for step in range(steps):
        given["input_ids"] = choose(outputs["logits"][:, -1])[:, None]
        if step == steps - 1:
            return
        given |= {PAST + name.removeprefix(PRESENT): array for name, array in cache.items()}
        outputs = further.run({spec.name: given[spec.name] for spec in further.inputs})
        cache |= {name: array for name, array in outputs.items() if name.startswith(PRESENT)}
