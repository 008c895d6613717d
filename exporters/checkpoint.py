"""From a checkpoint folder to an `Exportable`: config, task, weights, tokenizer, inputs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from onnxport.exporters.axes import token_axes
from onnxport.exporters.errors import RecipeError, SignatureError, SourceError
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.exporters.graph import FusionHints
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.manifest import Preprocessing, Source
from onnxport.exporters.preprocessing import load_tokenizer
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.sentence_embedding import SentenceEmbedder, SentenceStages, read_stages
from onnxport.exporters.source import CheckpointFolder, hash_weights, weight_files
from onnxport.exporters.tasks import Task, choose_task
from onnxport.exporters.text_inputs import KNOWN_INPUTS, MASK, TEXTS, TextInputs
from onnxport.verify.contract import AxisRange

# A single case should not need more than this for its attention scores: 8192 tokens in 12 heads would take 3 GB.
_ATTENTION_BYTES = 512 * 1024 * 1024
# Sizes at trace time: all different and at least 2, so that no axis is mistaken for another or for a constant.
_EXAMPLE = {"batch": 2, "choices": 4}
_EXAMPLE_LENGTH = 11


def load_checkpoint(
    folder: CheckpointFolder, recipe: Recipe, hub: HubOptions, attention: str
) -> tuple[Exportable, Any | None]:
    """Loads a checkpoint, in eval mode and in the recipe's dtype, and works out how to feed it.

    Returns the exportable and the tokenizer, None when the checkpoint has none.

    `attention` is the implementation the engine wants ("eager").

    Raises:
        SourceError: config, weights or tokenizer cannot be read, or weights that the task needs are missing.
        TaskError: the task cannot be told or does not fit.
        SignatureError: the model needs an input that cannot be made.
    """
    config = _load_config(folder, hub)
    task = choose_task(recipe.task, config, folder.path)
    tokenizer = load_tokenizer(folder.path, trust_remote_code=hub.trust_remote_code)
    stages = read_stages(folder.path, getattr(torch, recipe.dtype)) if task.name == "sentence-similarity" else None
    with ThreadPoolExecutor(1) as beside:  # hashing lets go of the interpreter lock, and loading takes longer
        weights_sha256 = beside.submit(hash_weights, folder.path)
        transformer, missing = _load_model(folder, config, task, recipe, hub, attention)
    text = _text_inputs(transformer, config, tokenizer, stages, task, recipe)
    module: nn.Module = transformer
    if stages is not None:
        module = SentenceEmbedder(transformer, stages.pooling, stages.after).eval()
    notes = (
        [] if tokenizer is not None else ["the checkpoint has no tokenizer: inputs are taken from the model's forward"]
    )
    exportable = Exportable(
        module=module,
        inputs=dict.fromkeys(text.names, text.axes),
        axes={
            axis: AxisRange(
                min=text.static.get(axis, 1),
                max=text.static.get(axis, text.max_length if axis == text.axes[-1] else None),
            )
            for axis in text.axes
        },
        example=_example_sizes(task, text),
        sample=text.sample,
        cases=text.cases,
        outputs=task.outputs,
        extra_outputs=recipe.outputs,
        mask=MASK if MASK in text.names else None,
        vocabularies=text.vocabularies,
        decisions=task.decisions,
        hints=_fusion_hints(config),
        source=Source(
            model=folder.label,
            revision=folder.revision,
            architecture=type(transformer).__name__,
            model_type=config.model_type,
            task=task.name,
            weights_sha256=weights_sha256.result(),
        ),
        preprocessing=Preprocessing(
            padding_side=getattr(tokenizer, "padding_side", None),
            max_length=min((n for n in (stages and stages.max_length, text.max_length) if n), default=None),
            pooling=stages.pooling_name if stages else None,
            normalize=stages.normalize if stages else None,
            labels=_labels(config, task),
        ),
        notes=tuple(notes),
    )
    if missing:
        exportable = _without_untrained_outputs(exportable, missing, folder)
    return exportable, tokenizer


def _load_config(folder: CheckpointFolder, hub: HubOptions) -> Any:
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder.path, trust_remote_code=hub.trust_remote_code, local_files_only=True)
    except Exception as e:
        raise SourceError(f"config.json of {folder.label} cannot be read: {_reason(e)}") from e
    # A decoder that serves as an encoder (embedding models) would return its cache among the outputs.
    config.use_cache = False
    return config


def _load_model(
    folder: CheckpointFolder, config: Any, task: Task, recipe: Recipe, hub: HubOptions, attention: str
) -> tuple[nn.Module, set[str]]:
    """Returns the model and the names of parameters for which the checkpoint has no weights."""
    import transformers

    if not weight_files(folder.path):
        raise SourceError(
            f"{folder.label} has no weights: expected model.safetensors or pytorch_model.bin (or their index)"
        )
    try:
        model, info = getattr(transformers, task.auto_class).from_pretrained(
            folder.path,
            config=config,
            dtype=getattr(torch, recipe.dtype),
            attn_implementation=attention,
            trust_remote_code=hub.trust_remote_code,
            local_files_only=True,
            output_loading_info=True,
        )
    except Exception as e:
        raise SourceError(f"the weights of {folder.label} cannot be loaded: {_reason(e)}") from e
    model.eval()
    return model, set(info["missing_keys"])


def _text_inputs(
    model: nn.Module, config: Any, tokenizer: Any, stages: SentenceStages | None, task: Task, recipe: Recipe
) -> TextInputs:
    """What the tokenizer emits and forward takes; without a tokenizer, what the model can use."""
    accepted = inspect.signature(model.forward).parameters
    type_vocab_size = int(getattr(config, "type_vocab_size", 0) or 0)
    if tokenizer is not None:
        emitted = set(tokenizer("one two"))
    else:
        emitted = {"input_ids", MASK} | ({"token_type_ids"} if type_vocab_size > 1 else set())
    names = tuple(name for name in accepted if name in emitted)
    unknown = [name for name in names if name not in KNOWN_INPUTS]
    if "input_ids" not in names or unknown:
        raise SignatureError(
            f"{type(model).__name__} takes {', '.join(accepted)} and the tokenizer emits {', '.join(sorted(emitted))}; "
            f"onnxport can make {', '.join(KNOWN_INPUTS)}"
        )
    vocab_size = getattr(config, "vocab_size", None)
    if not isinstance(vocab_size, int) or vocab_size < 2:
        raise SignatureError(
            f"{type(model).__name__} is no text encoder: its config has vocab_size {vocab_size}; onnxport exports "
            "models that read one text"
        )
    limit = _max_length(model, config, tokenizer)
    axes, static = token_axes(task.token_axes, names, recipe)
    if limit is not None and static.get(axes[-1], 0) > limit:
        raise RecipeError(f"a static {axes[-1]} of {static[axes[-1]]} is longer than the model's {limit} tokens")
    pad = tokenizer.pad_token_id if tokenizer is not None else None
    if tokenizer is not None:
        _require_known_ids(tokenizer, vocab_size)
    return TextInputs(
        names=names,
        axes=axes,
        vocab_size=vocab_size,
        pad_token_id=int(pad if pad is not None else getattr(config, "pad_token_id", None) or 0),
        type_vocab_size=type_vocab_size,
        max_length=limit,
        longest=_longest_case(limit, config, full=recipe.suite == "full"),
        static=static,
        tokenizer=tokenizer,
    )


def _require_known_ids(tokenizer: Any, vocab_size: int) -> None:
    """A tokenizer of another model makes ids that this one has no embedding for."""
    highest = max(id for text in TEXTS for id in tokenizer(text, verbose=False)["input_ids"])
    if highest >= vocab_size:
        raise SourceError(
            f"the tokenizer does not belong to the model: it makes the id {highest} of a common text, and the model "
            f"knows the ids below {vocab_size}; put the model's own tokenizer files into the checkpoint"
        )


def _max_length(model: nn.Module, config: Any, tokenizer: Any) -> int | None:
    """The longest sequence in tokens that both the position table and the tokenizer allow."""
    positions = getattr(config, "max_position_embeddings", None)
    limits = []
    if positions and positions > 0:
        # RoBERTa and its kin count positions from padding_idx + 1: their table is that much longer than the text.
        offsets = {
            module.padding_idx + 1
            for name, module in model.named_modules()
            if isinstance(module, nn.Embedding)
            and name.endswith("position_embeddings")
            and module.num_embeddings == positions
            and module.padding_idx is not None
        }
        limits.append(positions - max(offsets, default=0))
    told = getattr(tokenizer, "model_max_length", None)
    if told is not None and 0 < told < 1_000_000:  # transformers' word for "no limit" is about 1e30
        limits.append(int(told))
    return min(limits, default=None)


def _longest_case(limit: int | None, config: Any, *, full: bool) -> int:
    heads = int(getattr(config, "num_attention_heads", None) or 12)
    affordable = int((_ATTENTION_BYTES / (4 * heads)) ** 0.5)
    if limit is None:
        return min(512, affordable)
    return limit if full else min(limit, affordable)


def _example_sizes(task: Task, text: TextInputs) -> dict[str, int]:
    fitting = [n for n in range(min(_EXAMPLE_LENGTH, text.longest), 1, -1) if n not in _EXAMPLE.values()]
    sizes = {**_EXAMPLE, "sequence": fitting[0] if fitting else text.longest}
    return {axis: text.static.get(axis, sizes[role]) for role, axis in zip(task.token_axes, text.axes, strict=True)}


def _fusion_hints(config: Any) -> FusionHints:
    from optimum.utils import NormalizedConfigManager

    model_type = config.model_type
    try:
        normalized = NormalizedConfigManager.get_normalized_config_class(model_type)(config)
    except KeyError:
        normalized = config
    heads, hidden = (_number(normalized, name) for name in ("num_attention_heads", "hidden_size"))
    return FusionHints(model_type=model_type, num_heads=heads, hidden_size=hidden)


def _number(config: Any, name: str) -> int:
    try:
        value = getattr(config, name)
    except (AttributeError, KeyError):
        return 0
    return value if isinstance(value, int) else 0


def _labels(config: Any, task: Task) -> dict[str, str] | None:
    if not task.name.endswith("-classification"):
        return None
    return {str(index): str(label) for index, label in sorted(config.id2label.items())}


def _without_untrained_outputs(exportable: Exportable, missing: set[str], folder: CheckpointFolder) -> Exportable:
    """Leaves out the outputs that depend on parameters the checkpoint does not have.

    transformers fills such parameters with random numbers and only logs it. Which outputs they reach is found by
    changing them and looking.
    """
    module = exportable.module
    generator = torch.Generator().manual_seed(0)
    inputs = to_tensors(exportable.sample(exportable.example, np.random.default_rng(0)))
    with torch.inference_mode():
        before = {name: tensor.clone() for name, tensor in exportable.run(inputs).items()}
        for name, tensor in _named_tensors(module).items():
            if tensor.is_floating_point() and any(name == key or name.endswith("." + key) for key in missing):
                # Noise, not a shift: a layer norm that follows would take a shift away again.
                tensor.add_(torch.randn(tensor.shape, generator=generator).to(tensor.dtype))
        after = exportable.run(inputs)
    tainted = {name for name in before if not torch.equal(before[name], after[name])}
    some = ", ".join(sorted(missing)[:3]) + (" ..." if len(missing) > 3 else "")
    task = exportable.source.task
    needed = tainted & set(exportable.outputs or ()) or (tainted if tainted == set(before) else set())
    if needed:
        raise SourceError(
            f"{folder.label} has no weights for {some}, on which {', '.join(sorted(needed))} of task {task!r} depends: "
            "they would be random; use a checkpoint trained for the task, or another --task"
        )
    if not tainted:
        return exportable
    note = f"left out {', '.join(sorted(tainted))}: the checkpoint has no weights for {some}"
    return replace(exportable, dropped_outputs=frozenset(tainted), notes=(*exportable.notes, note))


def _named_tensors(module: nn.Module) -> Mapping[str, torch.Tensor]:
    return dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])


def _reason(error: BaseException) -> str:
    """The part of a third party's message that a person needs: its type and first lines, the home folder as "~"."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2]).replace(str(Path.home()), "~")
    return f"{type(error).__name__}: {text[:400]}"
