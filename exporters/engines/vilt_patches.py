"""ViLT's patches in the order in which they stand.

transformers shuffles the patches of each image, and puts padding of its own behind those of a small one. Attention has
no order but that of the positions, which are added before, and sees no padding: what a text says of the image does not
depend on either, but for rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def visual_embed(
    self: Any, pixel_values: Tensor, pixel_mask: Tensor, max_image_length: int | None = 200
) -> tuple[Tensor, Tensor, tuple[None, tuple[int, int]]]:
    """Embeds every patch, in order: float [batch, 1 + patches, hidden], and which of them are real, int64.

    Args:
        pixel_values: float [batch, channels, height, width].
        pixel_mask: [batch, height, width], 1 where the image is: a rectangle from the upper left corner.
        max_image_length: not read. A model that looks at no more patches than this draws them at random, and is refused
            before: it answers otherwise when it is asked again.
    """
    embedded = self.patch_embeddings(pixel_values)
    batch, hidden, rows, columns = embedded.shape
    mask = nn.functional.interpolate(pixel_mask[:, None].float(), size=(rows, columns)).long()[:, 0]
    side = self.config.image_size // self.config.patch_size
    table = self.position_embeddings[:, 1:].view(side, side, hidden)
    # In float32, whatever the table is: float16 has no room for the places of a fine grid.
    along_rows = _interpolation(rows, mask[:, :, 0].sum(dim=1), side).to(table.dtype)
    along_columns = _interpolation(columns, mask[:, 0, :].sum(dim=1), side).to(table.dtype)
    positions = torch.einsum("bhp,pqc->bhqc", along_rows, table)
    positions = torch.einsum("bwq,bhqc->bhwc", along_columns, positions)

    patches = embedded.flatten(2).transpose(1, 2) + positions.flatten(1, 2)
    first = (self.cls_token + self.position_embeddings[:, :1]).expand(batch, -1, -1)
    real = torch.cat([torch.ones_like(mask[:, 0, :1]), mask.flatten(1)], dim=1)
    # Where each patch stands is read by nothing that answers a question.
    return self.dropout(torch.cat([first, patches], dim=1)), real, (None, (rows, columns))


def _interpolation(size: int, real: Tensor, side: int) -> Tensor:
    """The weights with which `side` points make `size`, of which `real` [batch] lie on them, corner to corner.

    Linear: float [batch, size, side]. Past the real ones they are 0.
    """
    at = torch.arange(size, device=real.device)
    step = (side - 1) / (real - 1).clamp(min=1)[:, None, None]
    apart = (at[None, :, None] * step - torch.arange(side, device=real.device)[None, None, :]).abs()
    return (1 - apart).clamp(min=0) * (at[None, :] < real[:, None])[:, :, None]
