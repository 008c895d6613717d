"""Files to batches for a bundle's graph: pictures and sounds, by the processor that transformers loads from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from onnxport.exporters.errors import DatasetError
from onnxport.exporters.manifest import Component
from onnxport.exporters.task_metrics.metric import Batch
from onnxport.exporters.task_metrics.text_features import axis_range
from onnxport.verify.cases import Case

_BATCH = 16


class FileBatches:
    """Makes the inputs of files whenever it is gone through: they are too large to keep.

    Args:
        component: the graph.
        files: one for each item.
        make: a file to inputs by name, each of one row.
        together: whether files of one shape may share a batch, which needs inputs without padding.
    """

    def __init__(
        self,
        component: Component,
        files: Sequence[Path],
        make: Callable[[Path], Mapping[str, np.ndarray]],
        *,
        together: bool,
    ) -> None:
        self._component, self._files, self._make = component, files, make
        rows = axis_range(component, component.inputs[0].shape[0])
        self._least, self._most = rows.min, min(rows.max or _BATCH, _BATCH) if together else 1

    def __iter__(self) -> Iterator[Batch]:
        """Raises DatasetError where a file cannot be read or does not become what the graph takes."""
        waiting: list[tuple[int, dict[str, np.ndarray]]] = []
        for item, file in enumerate(self._files):
            inputs = self._inputs(file)
            full = len(waiting) == self._most
            if waiting and (full or any(inputs[n].shape != a.shape for n, a in waiting[0][1].items())):
                yield self._batch(waiting)
                waiting = []
            waiting.append((item, inputs))
        if waiting:
            yield self._batch(waiting)

    def _inputs(self, file: Path) -> dict[str, np.ndarray]:
        made, inputs = self._make(file), {}
        for spec in self._component.inputs:
            if spec.name not in made:
                raise DatasetError(f"the graph takes {spec.name}; {file.name} gives {', '.join(made)}")
            array = made[spec.name]
            ranges = [axis_range(self._component, dim) for dim in spec.shape[1:]]
            sizes = array.shape[1:]
            fits = len(ranges) == len(sizes) and all(
                one.min <= size <= (one.max or size) for one, size in zip(ranges, sizes, strict=True)
            )
            if not fits:
                raise DatasetError(
                    f"{file.name} becomes {spec.name} {list(array.shape)}, and the graph takes {list(spec.shape)}; "
                    "leave it out, or export with axes that take it (--axes)"
                )
            inputs[spec.name] = array.astype(spec.dtype)
        return inputs

    def _batch(self, found: Sequence[tuple[int, Mapping[str, np.ndarray]]]) -> Batch:
        filled = [inputs for _, inputs in found]
        filled += filled[-1:] * (self._least - len(filled))
        arrays = {name: np.concatenate([one[name] for one in filled]) for name in filled[0]}
        return Batch(Case(self._files[found[0][0]].name, arrays), tuple(item for item, _ in found))
