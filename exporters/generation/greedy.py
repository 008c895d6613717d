"""transformers' own greedy generation, and nothing else of it: no penalties, no forced or forbidden tokens, no end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from onnxport.exporters.errors import SignatureError
from onnxport.exporters.first_line import first_line
from onnxport.exporters.generation.generation import Generation

STEPS = 16
"""Tokens generated for a comparison."""

_RUNNERS_UP = 8


def generate_greedily(
    model: Any,
    loop: str,
    given: Mapping[str, Any],
    *,
    prompt: Mapping[str, np.ndarray],
    steps: int = STEPS,
    pad_token_id: int = 0,
    **options: Any,
) -> Generation:
    """Runs transformers' `generate` with the model's own cache and returns what it chose.

    Args:
        model: a transformers model in eval mode; its generation config is left as it was.
        loop: a row of `generation.GENERATORS`.
        given: keywords of `generate`: input_ids, attention_mask ...
        prompt: what the loop starts from.
        steps: tokens to generate in every row; none ends early.
        pad_token_id: passed on.
        options: further keywords of GenerationConfig (decoder_start_token_id).

    Raises:
        SignatureError: `generate` itself fails, or there is no room for a token.
    """
    if steps < 1:
        raise SignatureError(f"{type(model).__name__} has no position left for a token after the prompt")
    from transformers import GenerationConfig, GenerationMixin

    plain = GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=steps,
        use_cache=True,
        pad_token_id=pad_token_id,
        return_dict_in_generate=True,
        output_logits=True,
        **options,
    )
    with _config_of(model, plain), torch.inference_mode():
        # The one that all models share: Whisper's own adds prompts, timestamps and windows of 30 seconds.
        try:
            answer = GenerationMixin.generate(model, **given)
        except Exception as e:
            raise SignatureError(
                f"transformers' generate fails on {type(model).__name__}: {type(e).__name__}: {first_line(e)}"
            ) from e
    logits = torch.stack(list(answer.logits), dim=1).float()
    top = logits.topk(min(_RUNNERS_UP, logits.shape[-1]), dim=-1)
    return Generation(
        loop=loop,
        prompt=prompt,
        tokens=answer.sequences[:, -steps:].numpy().astype(np.int64),
        top_ids=top.indices.numpy().astype(np.int64),
        top_logits=top.values.numpy(),
    )


@contextmanager
def _config_of(model: Any, config: Any) -> Iterator[None]:
    """What a call to generate leaves out comes from the model's own config: penalties, forced tokens, an end."""
    kept = model.generation_config
    model.generation_config = config
    try:
        yield
    finally:
        model.generation_config = kept
