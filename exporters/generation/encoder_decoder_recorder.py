"""Records what an encoder-decoder model generates for a batch of its own inputs, of mixed lengths where it has them."""

from __future__ import annotations

import numpy as np

from onnxport.exporters.checkpoint import Checkpoint
from onnxport.exporters.components.encoder_decoder import divide
from onnxport.exporters.components.encoder_decoder_modules import cache_argument, empty_cache
from onnxport.exporters.errors import SignatureError
from onnxport.exporters.exportable import to_tensors
from onnxport.exporters.generation.encoder_decoder_loop import START
from onnxport.exporters.generation.generation import Generation
from onnxport.exporters.generation.greedy import STEPS, generate_greedily
from onnxport.exporters.inputs.decoder_steps import NEW, PAST
from onnxport.verify.cases import Case


def record(checkpoint: Checkpoint) -> Generation:
    """Generates with the checkpoint's model as it is.

    Raises:
        SignatureError: static axes leave no room for a step after the other.
    """
    parts = divide(checkpoint)
    static, longest = parts.static, parts.first.longest
    if PAST in static:
        raise SignatureError(f"axis {PAST} has a fixed size, and generation takes one token more at every step")
    if static.get(NEW, 1) != 1:
        raise SignatureError(
            f"the first step takes {static[NEW]} tokens (axis {NEW}), and greedy generation starts from one"
        )
    if not parts.states_fit():
        axis, made = parts.observed.names.states, parts.observed.length
        raise SignatureError(f"axis {axis} is fixed at {static[axis]}, and the encoder makes {made} states")
    case = _most_telling(parts.maker.cases("standard"))
    start = np.full((len(next(iter(case.inputs.values()))), 1), parts.special.start, dtype=np.int64)
    return generate_greedily(
        checkpoint.model,
        "encoder_decoder",
        # A cache of the decoder's layers: generate's own has as many as the encoder, and fails where T5's differ.
        {**to_tensors(case.inputs), cache_argument(checkpoint.model): empty_cache()},
        prompt={**case.inputs, START: start},
        steps=STEPS if longest is None else min(STEPS, longest - 1),
        pad_token_id=parts.special.pad,
        decoder_start_token_id=parts.special.start,
    )


def _most_telling(cases: list[Case]) -> Case:
    """Rows of real input of different lengths, if there are any; else as much of that as there is.

    Never one with global attention before others: `generate` of transformers 4 hides such tokens from the decoder.
    """

    def rank(case: Case) -> tuple[bool, bool, bool]:
        padded = case.mask is not None and not case.inputs[case.mask].all()
        several = len(next(iter(case.inputs.values()))) > 1
        return several, padded, not case.name.startswith(("random", "padding", "global"))

    return max(cases, key=rank)
