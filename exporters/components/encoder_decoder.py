"""An encoder-decoder model as Optimum divides it: the encoder, the decoder's first step, and its further steps.

`decoder_model` and `decoder_with_past_model` both hold the decoder's weights. The second lacks what makes the
cross-attention's keys and values, and takes those of the first step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from onnxport.exporters.axes import known_static
from onnxport.exporters.checkpoint import Checkpoint
from onnxport.exporters.components.component import make_component
from onnxport.exporters.components.encoder_decoder_modules import (
    HIDDEN,
    IDS,
    KINDS,
    LOGITS,
    STATES,
    STATES_MASK,
    Encoder,
    FirstStep,
    NextStep,
    past_name,
    present_name,
    run,
)
from onnxport.exporters.components.merged_decoder import MERGED, merged_component
from onnxport.exporters.errors import RecipeError, SignatureError
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.exporters.inputs import InputMaker, call_options, make_inputs
from onnxport.exporters.inputs.decoder_steps import NEW, PAST, Axes, DecoderSteps, Spread
from onnxport.exporters.inputs.merged_steps import MergedSteps
from onnxport.exporters.inputs.positions import require_positions
from onnxport.exporters.inputs.real_steps import RealSteps
from onnxport.verify.contract import Dim

ENCODER, DECODER, DECODER_WITH_PAST = "encoder_model", "decoder_model", "decoder_with_past_model"
"""Optimum's names of the files."""

_STATES_AXIS = "encoder_sequence"


@dataclass(frozen=True)
class Parts:
    """A model divided: what feeds each part, and what was seen to pass between them.

    Attributes:
        encoder_config, decoder_config: of the parts.
        maker: of the encoder's inputs.
        first, further: of the decoder's, without and with a cache.
        static: all axes with a fixed size, by name.
        special: ids that generation needs.
    """

    encoder_config: Any
    decoder_config: Any
    maker: InputMaker
    first: DecoderSteps
    further: DecoderSteps
    static: Mapping[str, int]
    special: SpecialTokens
    observed: Observed

    def states_fit(self) -> bool:
        """Whether the decoder's graphs take as many states as the encoder makes."""
        fixed = self.static.get(self.observed.names.states)
        return fixed is None or self.observed.names.states in self.maker.axes or fixed == self.observed.length


def components(checkpoint: Checkpoint) -> dict[str, Exportable]:
    """See `split`.

    Raises:
        SignatureError: the model has no decoder that reads an encoder's states, or it keeps no cache.
        RecipeError: outputs besides the standard ones; a fixed number of earlier tokens, for `merged`.
    """
    if checkpoint.recipe.outputs:
        raise RecipeError(
            f"outputs (--output) {', '.join(checkpoint.recipe.outputs)}: the graphs of an encoder-decoder model return "
            "what generation needs and nothing else; leave it out"
        )
    model, parts = checkpoint.model, divide(checkpoint)
    own = replace(checkpoint, config=parts.encoder_config)
    reading = replace(checkpoint, config=parts.decoder_config)

    def decoder(module: nn.Module, steps: DecoderSteps, kinds: tuple[str, ...]) -> Exportable:
        cached = [present_name(layer, kind) for layer in range(parts.observed.layers) for kind in kinds]
        return make_component(reading, module.eval(), steps, outputs=(LOGITS, *cached), decisions={LOGITS: -1})

    made = {
        ENCODER: make_component(own, Encoder(model).eval(), parts.maker, outputs=(HIDDEN,), decisions={}),
        DECODER: decoder(FirstStep(model), parts.first, KINDS),
        DECODER_WITH_PAST: decoder(NextStep(model, parts.observed.hidden_size), parts.further, KINDS[:2]),
    }
    if checkpoint.recipe.merged:
        steps = MergedSteps(parts.first, parts.further)
        halves = (DECODER, DECODER_WITH_PAST)
        made[MERGED] = merged_component(reading, made[DECODER], made[DECODER_WITH_PAST], halves, steps)
    return made


def divide(checkpoint: Checkpoint) -> Parts:
    """Finds the parts of a checkpoint's model and what they are fed with; runs each once.

    Raises:
        SignatureError: the model has no decoder that reads an encoder's states, it keeps no cache, or has no room for a
            step with one.
        RecipeError: axes that do not fit.
    """
    model: Any = checkpoint.model
    encoder, decoder = _towers(checkpoint)
    maker, static = _encoder_inputs(replace(checkpoint, model=encoder, config=encoder.config))
    seen = _observe(model, maker)
    special = _special_tokens(model)
    embedded = decoder.get_input_embeddings().num_embeddings
    real = RealSteps(
        model=model,
        maker=maker,
        vocab_size=embedded,
        start_token_id=special.start,
        pad_token_id=special.pad,
        has_mask=seen.has_mask,
        stride=seen.stride,
        states=static.get(seen.names.states),
        one_batch=seen.names.batch in static,
        position_bytes=seen.position_bytes,
        static=static,
    )
    first = DecoderSteps(
        names=seen.names,
        has_mask=seen.has_mask,
        floats={STATES: seen.states},
        vocab_size=embedded,
        pad_token_id=special.pad,
        longest=_longest(decoder.config),
        stride=seen.stride,
        static=static,
        real=real.first,
        left_out=real.left_out,
    )
    # A fixed number of tokens is that of the first step, the prompt of a task: further ones have one.
    one = {NEW: 1} if NEW in static else {}
    further = replace(first, floats=seen.cache, real=real.next, static={**static, **one})
    require_positions(checkpoint.source.architecture, further.longest, further.example, NEW, PAST)
    if static.get(NEW, 1) != 1:
        told = f"{NEW} is {static[NEW]} in {DECODER}, the first step, and 1 in {DECODER_WITH_PAST}, in those after it"
        first = replace(first, notes=(told,))
    return Parts(encoder.config, decoder.config, maker, first, further, static, special, seen)


@dataclass(frozen=True)
class SpecialTokens:
    """Ids that generation needs: what the decoder starts with, and what stands at padded positions."""

    start: int
    pad: int


def _special_tokens(model: Any) -> SpecialTokens:
    """Reads them where `generate` does, then in the configs of the model and of its decoder."""
    configs = (model.generation_config, model.config, model.get_decoder().config)

    def told(*names: str) -> int:
        found = (getattr(config, name, None) for name in names for config in configs)
        return int(next((value for value in found if isinstance(value, int)), 0))

    return SpecialTokens(told("decoder_start_token_id", "bos_token_id"), told("pad_token_id"))


def _towers(checkpoint: Checkpoint) -> tuple[Any, Any]:
    model: Any = checkpoint.model
    name = checkpoint.source.architecture
    if getattr(checkpoint.config, "is_encoder_decoder", False):
        encoder, decoder = model.get_encoder(), model.get_decoder()
        if isinstance(encoder, nn.Module) and isinstance(decoder, nn.Module) and encoder is not decoder:
            if not all(hasattr(part, "config") for part in (encoder, decoder)):
                raise SignatureError(
                    f"{name} has an encoder and a decoder without a config of their own, so that their graphs cannot "
                    "be derived; a model of transformers whose parts are PreTrainedModels is expected"
                )
            return encoder, decoder
    raise SignatureError(
        f"{name} has no encoder and decoder of its own (is_encoder_decoder of its config is not set, or both are one "
        f"module); task {checkpoint.task.name} is exported as encoder and decoder graphs only"
    )


def _encoder_inputs(checkpoint: Checkpoint) -> tuple[InputMaker, dict[str, int]]:
    """Returns what feeds the encoder, and all static axes, those of the decoder among them."""
    recipe = checkpoint.recipe
    free = make_inputs(replace(checkpoint, recipe=recipe.model_copy(update={"static": {}})))
    own = [name for name in (NEW, PAST) if name in free.axes]
    if own:
        raise RecipeError(f"axes (--axes) calls an axis of the encoder {own[0]!r}, which is one of the decoder")
    decoders = (NEW, PAST, *(() if _STATES_AXIS in free.axes else (_STATES_AXIS,)))
    static = known_static(recipe.static, [*free.axes, *decoders])
    if not static:
        return free, {axis: size.fixed for axis, size in free.axes.items() if size.fixed is not None}
    shared = {axis: size for axis, size in static.items() if axis in free.axes}
    maker = make_inputs(replace(checkpoint, recipe=recipe.model_copy(update={"static": shared})))
    return maker, static | {axis: size.fixed for axis, size in maker.axes.items() if size.fixed is not None}


@dataclass(frozen=True)
class Observed:
    """What a run of the model shows of what passes between its parts."""

    names: Axes
    has_mask: bool
    stride: int
    layers: int
    hidden_size: int
    length: int
    states: Spread
    cache: Mapping[str, Spread]

    @property
    def position_bytes(self) -> int:
        cached = [one for name, one in self.cache.items() if ".encoder." in name]
        numbers = sum(int(np.prod([dim for dim in one.dims if isinstance(dim, int)])) for one in cached)
        return numbers * cached[0].dtype.itemsize


def _observe(model: nn.Module, maker: InputMaker) -> Observed:
    """Runs the encoder and the decoder once.

    Raises:
        SignatureError: they fail, or the decoder caches nothing.
    """
    inputs = to_tensors(maker.sample(maker.example, np.random.default_rng(0)))
    try:
        hidden = run(Encoder(model), {**inputs, **call_options(maker)})[HIDDEN]
        mask = inputs[maker.mask] if maker.mask is not None else None
        ids = to_tensors({IDS: np.ones((len(hidden), 2), dtype=np.int64)})
        given = {**ids, STATES: hidden}
        step = run(FirstStep(model), given | ({} if mask is None else {STATES_MASK: mask}))
        has_mask = mask is not None and _reads_mask(model, given, mask, step[LOGITS])
    except (RuntimeError, ValueError, IndexError, TypeError, KeyError, AttributeError) as e:
        raise SignatureError(
            f"{type(model).__name__} cannot be divided into an encoder and a decoder with a cache: "
            f"{type(e).__name__}: {e}"
        ) from e
    layers = sum(name.endswith(KINDS[0]) for name in step)
    if not layers:
        raise SignatureError(f"{type(model).__name__} returns no cache of keys and values from its decoder")
    names, stride = _axes(maker, hidden, mask if has_mask else None)
    lengths = {"decoder": PAST, "encoder": names.states}
    cache = {}
    for layer in range(layers):
        for kind in KINDS:
            tensor = step[present_name(layer, kind)]
            dims: tuple[Dim, ...] = (names.batch, tensor.shape[1], lengths[kind.split(".")[0]], tensor.shape[3])
            cache[past_name(layer, kind)] = _spread(tensor, dims)
    return Observed(
        names=names,
        has_mask=has_mask,
        stride=stride,
        layers=layers,
        hidden_size=hidden.shape[-1],
        length=hidden.shape[1],
        states=_spread(hidden, (names.batch, names.states, hidden.shape[-1])),
        cache=cache,
    )


def _reads_mask(model: nn.Module, given: Mapping[str, Tensor], mask: Tensor, logits: Tensor) -> bool:
    """Whether the decoder's answer changes when the second half of what was read is padding."""
    half = mask.clone()
    half[:, mask.shape[1] // 2 :] = 0
    masked: Tensor = run(FirstStep(model), {**given, STATES_MASK: half})[LOGITS]
    return not bool((masked == logits).all())


def _axes(maker: InputMaker, hidden: Tensor, mask: Tensor | None) -> tuple[Axes, int]:
    """Names the axes that pass from the encoder to the decoder, and tells how many inputs make one state."""
    first = next(iter(maker.inputs.values()))
    batch = str(first[0])
    if mask is None or maker.mask is None:
        return Axes(batch, _STATES_AXIS, _STATES_AXIS), 1
    positions = str(maker.inputs[maker.mask][-1])
    states, length = hidden.shape[1], mask.shape[1]
    if states == length:
        return Axes(batch, positions, positions), 1
    fitting = [stride for stride in range(2, length + 1) if -(-length // stride) == states]
    if not fitting:
        raise SignatureError(
            f"the encoder makes {states} states of {length} positions: a mask of the positions is none of the states"
        )
    return Axes(batch, _STATES_AXIS, positions), fitting[0]


def _spread(tensor: Tensor, dims: tuple[Dim, ...]) -> Spread:
    array = tensor.numpy()
    return Spread(dims, array.dtype, max(float(array.std(dtype=np.float64)), 1e-3))


def _longest(config: Any) -> int | None:
    """The most tokens that the decoder has positions for."""
    told = (getattr(config, name, None) for name in ("max_target_positions", "max_position_embeddings"))
    return next((number for number in told if isinstance(number, int) and number > 0), None)
