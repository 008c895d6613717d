"""What a localisation found, in the form in which it is shown and stored."""

from __future__ import annotations

from typing import Literal

from onnxport.verify.contract import Model
from onnxport.verify.report import Number
from onnxport.verify.tolerance import Criterion

Verdict = Literal["agrees", "diverges", "unmatched"]


class LayerFinding(Model):
    """One layer of a graph against PyTorch, as the graph runs and alone.

    Attributes:
        module: the PyTorch module, "" for the model itself. kind: its class.
        value: its output in the graph.
        covers: other modules that the graph computes in the same piece, because fusion left no value between them.
        operators: what the graph computes it with from the nearest layers before, constants aside.
        max_abs_diff, ratio: as the graph runs; ratio is the largest difference over the allowed one. None: the graph
            does not run.
        alone_max_abs_diff, alone_ratio: fed with PyTorch's values of the layers before. None: see `failure`.
        failure: why the layer does not run alone.
        verdict: "diverges": it is wrong on the right inputs; "inherited": it is right, its inputs are wrong.
    """

    module: str
    kind: str
    value: str
    covers: tuple[str, ...] = ()
    operators: tuple[str, ...]
    max_abs_diff: Number | None = None
    ratio: Number | None = None
    alone_max_abs_diff: Number | None = None
    alone_ratio: Number | None = None
    failure: str | None = None
    verdict: Literal["agrees", "inherited", "diverges"]


class PassFinding(Model):
    """The optimisation to blame.

    Attributes:
        stage: "fusion", "session" (ONNX Runtime's passes when the file was made), "load" (the same when it is loaded),
            "conversion" (to a lower precision or another format) or "none": these steps make a graph that agrees.
        passes: the passes without which the graph agrees; empty where that cannot be said.
        detail: in words.
    """

    stage: Literal["fusion", "session", "load", "conversion", "none"]
    passes: tuple[str, ...] = ()
    detail: str


class VariantFinding(Model):
    """One variant.

    Attributes:
        verdict: "diverges" if an output is out of tolerance, or a layer is wrong on right inputs; "unmatched" if the
            outputs agree, but no layer could be compared.
        case: the case that the layers were compared on.
        outputs: the graph's outputs in that case, in words.
        layers: in the order in which the graph computes them; empty where they could not be compared.
        criterion: what the layers were held against; see `walk`.
        session_options: with which the layers were run; by default every node as it stands in the file.
        first: the number in `layers` of the first that diverges; None: there is none.
        blame: the optimisation to blame, where it was looked for.
        summary: what is wrong, in one sentence.
        reproduction: the folder that reproduces it, relative to the output folder.
    """

    variant: str
    verdict: Verdict
    case: str
    outputs: dict[str, str]
    layers: tuple[LayerFinding, ...] = ()
    session_options: dict[str, str]
    criterion: Criterion
    first: int | None = None
    blame: PassFinding | None = None
    summary: str
    reproduction: str | None = None


class Localization(Model):
    """All of it.

    Attributes:
        verdict: "diverges" if a variant does; "unmatched" if no variant has layers to compare.
        source: the PyTorch model that was compared with.
    """

    schema_version: Literal[1] = 1
    verdict: Verdict
    source: str
    variants: tuple[VariantFinding, ...]
