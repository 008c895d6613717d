"""A model that is one graph: whatever its forward takes, in one component."""

from __future__ import annotations

from torch import nn

from onnxport.exporters.checkpoint import Checkpoint
from onnxport.exporters.components.component import make_component
from onnxport.exporters.exportable import Exportable
from onnxport.exporters.inputs import make_inputs
from onnxport.exporters.sentence_embedding import SentenceEmbedder, read_stages

MODEL = "model"
"""The component of a model that is one graph: Optimum's name of the file."""


def components(checkpoint: Checkpoint) -> dict[str, Exportable]:
    """See `split`."""
    maker = make_inputs(checkpoint)
    module: nn.Module = checkpoint.model
    preprocessing = maker.preprocessing
    if checkpoint.task.name == "sentence-similarity":
        stages = read_stages(checkpoint.folder.path, checkpoint.dtype)
        module = SentenceEmbedder(checkpoint.model, stages.pooling, stages.after).eval()
        lengths = [n for n in (stages.max_length, preprocessing.max_length) if n]
        told = {"pooling": stages.pooling_name, "normalize": stages.normalize}
        preprocessing = preprocessing.model_copy(update={**told, "max_length": min(lengths, default=None)})
    task = checkpoint.task
    exportable = make_component(
        checkpoint, module, maker, outputs=task.outputs, decisions=task.decisions, preprocessing=preprocessing
    )
    return {MODEL: exportable}
