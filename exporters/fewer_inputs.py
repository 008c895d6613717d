"""A model fed with some of its inputs: what an ONNX file of other makers does not take is not given to the source."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from onnxport.exporters.exportable import Arrays, Exportable
from onnxport.verify.cases import Case
from onnxport.verify.contract import with_fixed


def without_inputs(exportable: Exportable, lacking: Collection[str]) -> Exportable:
    """Returns the exportable without these inputs: PyTorch's defaults take their place.

    An axis that may be 0 and that only they have is 0 from then on, and the cases in which it is not are left out: a
    decoder without a cache reads prompts, and its mask has the length of the prompt.
    """
    whole = exportable
    kept = {name: dims for name, dims in whole.inputs.items() if name not in lacking}
    measured = {dim for dims in kept.values() for dim in dims}
    empty = {name: 0 for name, allowed in whole.axes.items() if name not in measured and allowed.min == 0}

    def fed(inputs: Mapping[str, np.ndarray]) -> Arrays:
        return {name: inputs[name] for name in kept}

    def fits(case: Case) -> bool:
        return all(
            size == empty.get(str(dim), size)
            for name, dims in whole.inputs.items()
            for dim, size in zip(dims, case.inputs[name].shape, strict=True)
        )

    return replace(
        whole,
        inputs={name: tuple(with_fixed(dim, empty) for dim in dims) for name, dims in kept.items()},
        axes={name: allowed for name, allowed in whole.axes.items() if name not in empty},
        example={name: size for name, size in whole.example.items() if name not in empty},
        sample=lambda sizes, rng: fed(whole.sample({**sizes, **empty}, rng)),
        cases=lambda suite: [
            Case(case.name, fed(case.inputs), None if case.mask in lacking else case.mask)
            for case in whole.cases(suite)
            if fits(case)
        ],
        mask=None if whole.mask in lacking else whole.mask,
        vocabularies={name: it for name, it in whole.vocabularies.items() if name not in lacking},
    )
