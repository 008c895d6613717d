"""Generation through a decoder that is one graph: prefill with an empty cache, then a token at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnxport.exporters.generation import Arrays, Choose, LoopGraph

PAST, PRESENT = "past_key_values.", "present."
"""A cache tensor is the input `past_key_values.0.key` and the output `present.0.key`."""


def generate(graphs: Mapping[str, LoopGraph], prompt: Arrays, steps: int, choose: Choose) -> None:
    """See `generation.Loop`. The prompt has input_ids and attention_mask, int64 [batch, length], padded on the left."""
    (graph,) = graphs.values()
    ids, mask = prompt["input_ids"], prompt["attention_mask"]
    shapes = {spec.name: spec.shape for spec in graph.inputs}
    cache = {
        spec.name: np.zeros((len(ids), int(spec.shape[1]), 0, int(spec.shape[3])), dtype=spec.dtype)
        for spec in graph.inputs
        if spec.name.startswith(PAST)
    }
    # A graph for a single token reads the prompt like any other text: a token at a time.
    at_once = 1 if shapes["input_ids"][1] == 1 else ids.shape[1]
    seen, length = 0, ids.shape[1] + steps - 1
    mask = np.concatenate([mask, np.ones((len(ids), steps - 1), dtype=mask.dtype)], axis=1)
    positions = position_ids(mask)
    while seen < length:
        new = slice(seen, seen + (at_once if seen < prompt["input_ids"].shape[1] else 1))
        inputs = {"input_ids": ids[:, new], "attention_mask": mask[:, : new.stop], **cache}
        if "position_ids" in shapes:
            inputs["position_ids"] = positions[:, new]
        outputs = graph.run(inputs)
        cache = {name: outputs[PRESENT + name.removeprefix(PAST)] for name in cache}
        seen = new.stop
        if seen >= ids.shape[1]:
            ids = np.concatenate([ids, choose(outputs["logits"][:, -1])[:, None]], axis=1)


def position_ids(mask: np.ndarray) -> np.ndarray:
    """Returns the position of every real token in its row, int64, and 0 where the mask is 0."""
    counted: np.ndarray = np.where(mask != 0, np.cumsum(mask != 0, axis=-1) - 1, 0).astype(np.int64)
    return counted
