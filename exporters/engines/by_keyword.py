"""The module as engines see it: tensors in, tensors out, in the order of the graph."""

from __future__ import annotations

from torch import Tensor, nn

from onnxport.exporters.exportable import Exportable


class ByKeyword(nn.Module):
    """Takes the inputs in the graph's order and hands them on by keyword: by position, some models swap them.

    An exporter that wants keywords may call them what it likes; their order counts.
    """

    def __init__(self, exportable: Exportable, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = exportable.module
        self._exportable = exportable
        self._names = names
        # Tracing restores the wrapper's mode on the way out; a wrapper in train mode would put dropout back on.
        self.eval()

    def forward(self, *inputs: Tensor, **named: Tensor) -> tuple[Tensor, ...]:
        given = zip(self._names, (*inputs, *named.values()), strict=True)
        return tuple(self._exportable.run(dict(given)).values())
