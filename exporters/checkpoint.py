"""From a checkpoint folder to a model in memory: config, task, weights, processors."""

from __future__ import annotations

from collections.abc import Iterable, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from onnxport.exporters.errors import SourceError
from onnxport.exporters.hub_options import HubOptions, require_no_code
from onnxport.exporters.manifest import Source
from onnxport.exporters.own_code import require_own_class, require_readable_map
from onnxport.exporters.preprocessing import Processors, load_processors
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.source import CheckpointFolder, hash_weights, weight_files
from onnxport.exporters.tasks import Head, Task, choose_task

# What the fusions of onnxruntime.transformers match, and every engine can trace.
_ATTENTION = "eager"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in memory.

    Attributes:
        folder: where it lies.
        config: transformers' config, of the whole model.
        task, head: what it is exported for, and the class that was loaded for it.
        model: transformers' model, in eval mode and in the recipe's dtype.
        missing: names of the parameters for which the checkpoint has no weights.
        notes: what a person should know of how it was loaded.
        processors: what makes its inputs.
        source: what bundle.json says of it.
        recipe: what is to be made of it.
    """

    folder: CheckpointFolder
    config: Any
    task: Task
    head: Head
    model: nn.Module
    missing: Set[str]
    notes: tuple[str, ...]
    processors: Processors
    source: Source
    recipe: Recipe

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights in memory."""
        return dtype_named(self.recipe.dtype)


def dtype_named(name: str) -> torch.dtype:
    """ "float16" -> torch.float16."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def load_checkpoint(folder: CheckpointFolder, recipe: Recipe, hub: HubOptions) -> Checkpoint:
    """Loads a checkpoint, in eval mode and in the recipe's dtype.

    Raises:
        SourceError: config, weights or a processor cannot be read.
        TaskError: the task cannot be told or does not fit.
    """
    config = _load_config(folder, hub)
    task, head = choose_task(recipe.task, config, folder.path)
    # A decoder that serves as an encoder (embedding models) would return its cache among the outputs.
    config.use_cache = head.cached
    processors = load_processors(folder.path, trust_remote_code=hub.trust_remote_code)
    with ThreadPoolExecutor(1) as beside:  # hashing lets go of the interpreter lock, and loading takes longer
        weights_sha256 = beside.submit(hash_weights, folder.path)
        model, missing = _load_model(folder, config, head, recipe, hub)
    notes: tuple[str, ...] = ()
    if not hub.trust_remote_code:
        notes = require_own_class(model, getattr(config, "auto_map", None), head.auto_class, folder.label)
    source = Source(
        model=folder.label,
        revision=folder.revision,
        architecture=type(model).__name__,
        model_type=config.model_type,
        task=task.name,
        weights_sha256=weights_sha256.result(),
    )
    return Checkpoint(folder, config, task, head, model, missing, notes, processors, source, recipe)


def _load_config(folder: CheckpointFolder, hub: HubOptions) -> Any:
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder.path, trust_remote_code=hub.trust_remote_code, local_files_only=True)
    except Exception as e:
        require_no_code(e, folder.label)
        raise SourceError(f"config.json of {folder.label} cannot be read: {_reason(e)}") from e
    require_readable_map(getattr(config, "auto_map", None), "config.json", folder.label)
    return config


def _load_model(
    folder: CheckpointFolder, config: Any, head: Head, recipe: Recipe, hub: HubOptions
) -> tuple[nn.Module, set[str]]:
    """Returns the model and the names of parameters for which the checkpoint has no weights."""
    import transformers

    if not weight_files(folder.path):
        raise SourceError(
            f"{folder.label} has no weights: expected model.safetensors or pytorch_model.bin (or their index)"
        )
    try:
        model, info = getattr(transformers, head.auto_class).from_pretrained(
            folder.path,
            config=config,
            dtype=dtype_named(recipe.dtype),
            attn_implementation=_ATTENTION,
            trust_remote_code=hub.trust_remote_code,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # told below: transformers tells its log of them
        )
    except Exception as e:
        require_no_code(e, folder.label)
        code = hub.trust_remote_code and getattr(config, "auto_map", None)
        loaded = f"{folder.label}, with Python code of its own," if code else f"the weights of {folder.label}"
        raise SourceError(f"{loaded} cannot be loaded: {_reason(e)}") from e
    _require_fitting(folder, model, info["mismatched_keys"])
    model.eval()
    return model, set(info["missing_keys"])


def _require_fitting(folder: CheckpointFolder, model: nn.Module, mismatched: Iterable[Any]) -> None:
    """Weights of other shapes than config.json asks for would be drawn at random.

    Args:
        mismatched: what transformers says of them: names, since 5 with both shapes.
    """
    told = sorted(
        (one, "of another shape") if isinstance(one, str) else (one[0], str(list(one[1]))) for one in mismatched
    )
    if not told:
        return
    name, shape = told[0]
    others = f" (so are {len(told) - 1} others)" if len(told) > 1 else ""
    raise SourceError(
        f"the weights of {folder.label} are not of its config.json: {name} is {shape} in the checkpoint, expected "
        f"{list(model.state_dict()[name].shape)}{others}; mend config.json, or put its own weights beside it"
    )


def _reason(error: BaseException) -> str:
    """The part of a third party's message that a person needs: its type and first lines, the home folder as "~"."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2]).replace(str(Path.home()), "~")
    return f"{type(error).__name__}: {text[:400]}"
