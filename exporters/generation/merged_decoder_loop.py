"""Generation through an encoder and a decoder of one graph, told at every step whether there is a cache."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnxport.exporters.generation import Arrays, Choose, LoopGraph
from onnxport.exporters.generation.encoder_decoder_loop import MASKED, PAST, PRESENT, START

USE_CACHE = "use_cache_branch"


def generate(graphs: Mapping[str, LoopGraph], prompt: Arrays, steps: int, choose: Choose) -> None:
    """See `generation.Loop`. The prompt is that of `encoder_decoder_loop`.

    The first step is given a cache of length 0, as Optimum and transformers.js give it, and every other one what the
    step before returned.
    """
    encoder, decoder = graphs["encoder_model"], graphs["decoder_model_merged"]
    states = encoder.run({spec.name: prompt[spec.name] for spec in encoder.inputs})["last_hidden_state"]
    given = {"input_ids": prompt[START], "encoder_hidden_states": states, USE_CACHE: np.array([False])}
    if "attention_mask" in prompt:
        given[MASKED] = prompt["attention_mask"]
    for spec in decoder.inputs:
        if spec.name.startswith(PAST):
            shape = (len(states), int(spec.shape[1]), 0, int(spec.shape[3]))
            given[spec.name] = np.zeros(shape, dtype=spec.dtype)
    for step in range(steps):
        outputs = decoder.run({spec.name: given[spec.name] for spec in decoder.inputs})
        given["input_ids"] = choose(outputs["logits"][:, -1])[:, None]
        if step == steps - 1:
            return
        present = {name: array for name, array in outputs.items() if name.startswith(PRESENT)}
        given |= {PAST + name.removeprefix(PRESENT): array for name, array in present.items()}
        given[USE_CACHE] = np.array([True])
