"""One graph of a checkpoint: a module, what feeds it, and what the checkpoint says of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import nn

from onnxport.exporters.checkpoint import Checkpoint
from onnxport.exporters.components.untrained import without_untrained_outputs
from onnxport.exporters.exportable import Exportable
from onnxport.exporters.graph import FusionHints
from onnxport.exporters.inputs import InputMaker, call_options, left_out
from onnxport.exporters.manifest import Preprocessing


def make_component(
    checkpoint: Checkpoint,
    module: nn.Module,
    maker: InputMaker,
    *,
    outputs: tuple[str, ...] | None,
    decisions: Mapping[str, int],
    preprocessing: Preprocessing | None = None,
) -> Exportable:
    """Returns the component, without the outputs that the checkpoint has no weights for.

    Args:
        module: in eval mode; the checkpoint's model, or a wrapper around it or a part of it.
        maker: feeds it.
        outputs: outputs kept, in order; None keeps every tensor.
        decisions: outputs whose argmax a user acts on, with the axis.
        preprocessing: instead of the maker's.

    Raises:
        SourceError: an output that the task needs depends on weights that the checkpoint lacks.
    """
    exportable = Exportable(
        module=module,
        inputs=maker.inputs,
        axes=maker.axes,
        example=maker.example,
        sample=maker.sample,
        cases=maker.cases,
        left_out=partial(left_out, maker),
        outputs=outputs,
        extra_outputs=checkpoint.recipe.outputs,
        options=call_options(maker),
        mask=maker.mask,
        vocabularies=maker.vocabularies,
        decisions=decisions,
        hints=fusion_hints(checkpoint.config),
        source=checkpoint.source,
        preprocessing=(preprocessing or maker.preprocessing).model_copy(update={"labels": _labels(checkpoint)}),
        notes=maker.notes,
    )
    if checkpoint.missing:
        return without_untrained_outputs(exportable, checkpoint.model, checkpoint.missing, checkpoint.folder.label)
    return exportable


def fusion_hints(config: Any) -> FusionHints:
    """What the config says of attention, under the names that optimum knows for its model type."""
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


_LABELLED = ("-classification", "visual-question-answering", "object-detection", "image-segmentation")


def _labels(checkpoint: Checkpoint) -> dict[str, str] | None:
    name = checkpoint.task.name
    # A zero-shot classifier is given its labels with every call.
    if name.startswith("zero-shot-") or not name.endswith(_LABELLED):
        return None
    names = getattr(checkpoint.config, "id2label", None)  # null with models that keep num_labels beside it (PVT)
    return None if names is None else {str(index): str(label) for index, label in sorted(names.items())}
