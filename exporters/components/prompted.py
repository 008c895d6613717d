"""A model that segments what points say as two graphs: what looks at the image once, and what answers each prompt."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onnxport.exporters.checkpoint import Checkpoint
from onnxport.exporters.components.component import make_component
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.exporters.inputs.combined import apart
from onnxport.exporters.inputs.image import image_inputs
from onnxport.exporters.inputs.prompts import EMBEDDINGS, prompt_inputs

VISION_ENCODER, MASK_DECODER = "vision_encoder", "prompt_encoder_mask_decoder"
"""Optimum's names of the files."""


class VisionEncoder(nn.Module):
    """pixel_values [batch, channels, height, width] to `EMBEDDINGS`, each [batch, channels, rows, columns]."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, pixel_values: Tensor) -> dict[str, Tensor]:
        embeddings = self.model.vision_encoder(pixel_values)[0]
        positions = self.model.get_image_wide_positional_embeddings().repeat(embeddings.shape[0], 1, 1, 1)
        return dict(zip(EMBEDDINGS, (embeddings, positions), strict=True))


class MaskDecoder(nn.Module):
    """What `VisionEncoder` returns, and points with their labels, to the scores and masks of the whole model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    def forward(
        self,
        image_embeddings: Tensor,
        image_positional_embeddings: Tensor,
        input_points: Tensor,
        input_labels: Tensor,
    ) -> dict[str, Tensor]:
        sparse, dense = self.model.prompt_encoder(
            input_points=input_points, input_labels=input_labels, input_boxes=None, input_masks=None
        )
        masks, scores = self.model.mask_decoder(
            image_embeddings=image_embeddings,
            image_positional_embeddings=image_positional_embeddings,
            sparse_prompt_embeddings=sparse,
            dense_prompt_embeddings=dense,
            multimask_output=True,
        )[:2]
        return {"iou_scores": scores, "pred_masks": masks}


def is_prompted(model: nn.Module) -> bool:
    """Whether a model has an encoder of images, an encoder of prompts, and a decoder of masks, as SAM has."""
    parts = ("vision_encoder", "prompt_encoder", "mask_decoder", "get_image_wide_positional_embeddings")
    return all(hasattr(model, part) for part in parts)


def components(checkpoint: Checkpoint) -> dict[str, Exportable]:
    """See `split`."""
    encoder = VisionEncoder(checkpoint.model).eval()
    image = image_inputs(checkpoint)
    with torch.inference_mode():
        embeddings = encoder(**to_tensors(image.sample(image.example, np.random.default_rng(0))))[EMBEDDINGS[0]]
    shape = tuple(embeddings.shape[1:])
    makers = apart(checkpoint, {"image": image_inputs, "prompt": lambda checkpoint: prompt_inputs(checkpoint, shape)})
    task = checkpoint.task
    return {
        VISION_ENCODER: make_component(checkpoint, encoder, makers["image"], outputs=EMBEDDINGS, decisions={}),
        MASK_DECODER: make_component(
            checkpoint,
            MaskDecoder(checkpoint.model).eval(),
            makers["prompt"],
            outputs=task.outputs,
            decisions=task.decisions,
        ),
    }
