"""Both graphs of a decoder in one, as Optimum's and transformers.js' loaders want it: `decoder_model_merged`.

Its graph is made of those of `decoder_model` and `decoder_with_past_model`; the module here is what it is compared
with.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from onnxport.exporters.checkpoint import Checkpoint
from onnxport.exporters.choice import Choice
from onnxport.exporters.components.component import make_component
from onnxport.exporters.components.encoder_decoder_modules import KINDS, past_name, present_name
from onnxport.exporters.errors import RecipeError
from onnxport.exporters.exportable import Exportable
from onnxport.exporters.inputs.decoder_steps import NEW, PAST
from onnxport.exporters.inputs.merged_steps import USE_CACHE, MergedSteps

MERGED = "decoder_model_merged"
"""Optimum's name of the file."""


class EitherStep(nn.Module):
    """The first step, or one with a cache, as `use_cache_branch` says.

    Args:
        first, further: the modules of both.
    """

    def __init__(self, first: nn.Module, further: nn.Module) -> None:
        super().__init__()
        self.first = first
        self.further = further

    def forward(
        self,
        input_ids: Tensor,
        encoder_hidden_states: Tensor,
        use_cache_branch: Tensor,
        encoder_attention_mask: Tensor | None = None,
        **past: Tensor,
    ) -> dict[str, Tensor]:
        if not bool(use_cache_branch):
            first: dict[str, Tensor] = self.first(input_ids, encoder_hidden_states, encoder_attention_mask)
            return first
        further: dict[str, Tensor] = self.further(input_ids, encoder_attention_mask, **past)
        # What cross-attention reads stays as it is; both branches return the same names.
        return further | {
            present_name(layer, kind): past[past_name(layer, kind)]
            for layer in range(len(past) // len(KINDS))
            for kind in KINDS[2:]
        }


def merged_component(
    checkpoint: Checkpoint, first: Exportable, further: Exportable, parts: tuple[str, str], steps: MergedSteps
) -> Exportable:
    """Returns the component that is made of the other two.

    Args:
        checkpoint: with the decoder's config.
        first, further: the components of a first step and of further ones; `parts` are their names.
        steps: makes the inputs.

    Raises:
        RecipeError: the number of earlier tokens is fixed, and before the first step there are none; or that of new
            tokens, which differs between the first step and others.
    """
    if steps.first.static.get(NEW, 1) != 1:
        raise RecipeError(
            f"static (--static) fixes {NEW} at {steps.first.static[NEW]} for the first step, and {MERGED} (--merged) "
            "also takes the steps after it, of one token; leave one of them out"
        )
    if steps.further.static.get(PAST) is not None:
        raise RecipeError(
            f"static (--static) fixes {PAST}, and {MERGED} (--merged) also takes the first step, before which there "
            "are no tokens; leave one of them out"
        )
    assert first.outputs is not None
    assert further.outputs is not None
    lacking = [name for name in first.outputs if name not in further.outputs]
    component = make_component(
        checkpoint,
        EitherStep(first.module, further.module).eval(),
        steps,
        outputs=first.outputs,
        decisions=first.decisions,
    )
    return replace(
        component,
        choice=Choice(
            condition=USE_CACHE,
            if_true=parts[1],
            if_false=parts[0],
            passed={name: f"past_key_values{name.removeprefix('present')}" for name in lacking},
        ),
    )
