"""A graph against PyTorch, layer by layer.

Twice: as the graph runs, where an early error colours all that follows, and with every layer fed with PyTorch's values
of the layers before it, where only layers that are wrong themselves differ. Each is one run of the whole graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from onnxport.exporters.localization.findings import LayerFinding
from onnxport.exporters.localization.scopes import MatchedLayer
from onnxport.verify.cases import Case
from onnxport.verify.compare import Comparison, compare_output
from onnxport.verify.dissection import Arrays, Dissection, run_model
from onnxport.verify.errors import SessionError
from onnxport.verify.tolerance import Criterion, Statistics, Tolerance

_OUTSTANDING = 10
"""Times the median from which on a layer's own difference is not what floating point makes of any layer."""
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class _Measured:
    max_abs_diff: float
    ratio: float
    dtype: np.dtype


def walk(
    graph: Dissection,
    base: Dissection,
    layers: Sequence[MatchedLayer],
    case: Case,
    criterion: Criterion,
    options: Mapping[str, str] | None = None,
) -> tuple[list[LayerFinding], Arrays]:
    """Compares every layer that the graph still has a value for.

    Args:
        graph: the graph to compare; an optimised one keeps the names of values that it did not fuse away.
        base: the graph as exported, which the layers were matched in.
        layers: what PyTorch has for `case`.
        criterion: that of the graph's outputs; see `layer_criterion` for what becomes of it.
        options: session options; None: every node as it stands in the file.

    Returns:
        The findings in the order in which the graph computes them, and PyTorch's values in the graph's dtypes.

    Raises:
        SessionError: the graph does not load, or does not run on the case.
    """
    kept = _in_order(graph, layers)
    as_run = _measure(graph, kept, case, criterion, {}, options)
    # In an optimised graph a name may have come to mean something else; in the graph as exported it does not.
    odd = {value: what for value, what in as_run.items() if isinstance(what, str) and graph.path == base.path}
    right = {value: what for value, what in as_run.items() if isinstance(what, _Measured)}
    known = {layer.value: layer.array.astype(right[layer.value].dtype) for layer in kept if layer.value in right}
    alone = _measure(graph, [layer for layer in kept if layer.value in known], case, criterion, known, options)
    findings: list[LayerFinding] = []
    for layer in kept:
        where = _place(graph, base, layer, layers, known)
        own = alone.get(layer.value) or odd.get(layer.value)
        if isinstance(own, _Measured):
            run = right[layer.value]
            findings.append(
                LayerFinding(
                    **where,
                    max_abs_diff=run.max_abs_diff,
                    ratio=run.ratio,
                    alone_max_abs_diff=own.max_abs_diff,
                    alone_ratio=own.ratio,
                    verdict="diverges" if own.ratio > 1 else "inherited" if run.ratio > 1 else "agrees",
                )
            )
        elif own is not None:
            after = any(finding.failure for finding in findings)
            findings.append(LayerFinding(**where, failure=own, verdict="inherited" if after else "diverges"))
    return findings, known


def walk_pieces(
    graph: Dissection,
    base: Dissection,
    layers: Sequence[MatchedLayer],
    case: Case,
    criterion: Criterion,
    options: Mapping[str, str] | None = None,
) -> tuple[list[LayerFinding], Arrays]:
    """The same for a graph that does not run as a whole: every layer alone, in a session of its own.

    Raises:
        SessionError: the weights cannot be read.
    """
    kept = _in_order(graph, layers)
    known = {layer.value: layer.array for layer in kept}
    findings = []
    for layer in kept:
        segment = graph.segment(layer.value, known)
        inputs = {name: known[name] if name in known else case.inputs[name] for name in segment.inputs}
        model = graph.cut(segment, inputs)
        where = _place(graph, base, layer, layers, known)
        try:
            measured = _compare(layer, run_model(model, inputs, options)[0], case, criterion)
        except SessionError as e:
            findings.append(LayerFinding(**where, failure=str(e), verdict="diverges"))
            continue
        if isinstance(measured, _Measured):
            findings.append(
                LayerFinding(
                    **where,
                    alone_max_abs_diff=measured.max_abs_diff,
                    alone_ratio=measured.ratio,
                    verdict="diverges" if measured.ratio > 1 else "agrees",
                )
            )
        elif measured is not None:
            findings.append(LayerFinding(**where, failure=measured, verdict="diverges"))
    return findings, known


def tightened(criterion: Criterion, findings: Sequence[LayerFinding]) -> Criterion | None:
    """Returns a criterion by which layers that stand out diverge, where by this one none does.

    What is allowed becomes ten times what a layer of this graph commonly differs by, alone.

    Returns:
        None: nothing stands out; what differs are all layers a little.
    """
    ratios = [finding.alone_ratio for finding in findings if finding.alone_ratio is not None]
    if not ratios or not isinstance(criterion, Tolerance):
        return None
    share = max(_OUTSTANDING * median(ratios), _LEAST_SHARE)
    if share >= min(1.0, max(ratios)):
        return None
    return Tolerance(rtol=criterion.rtol * share, atol=criterion.atol * share)


def layer_criterion(criterion: Criterion, reference: np.ndarray, real: np.ndarray | None) -> Criterion:
    """Returns what holds for the values of a layer.

    A layer may be of any scale, so atol is a share of the RMS of its own values: `|a - b| <= atol * rms + rtol * |b|`.
    """
    if isinstance(criterion, Statistics):
        return criterion.model_copy(update={"decisions": {}})
    values = reference.astype(np.float64)
    values = values[np.isfinite(values) & (True if real is None else real)]
    rms = float(np.sqrt(np.square(values).mean())) if values.size else 0.0
    return Tolerance(rtol=criterion.rtol, atol=criterion.atol * (rms or 1.0))


def ratio(comparison: Comparison, criterion: Criterion) -> float:
    """Returns the largest difference over the allowed one: of statistics, the worst of all; above 1 is too much."""
    if comparison.unexpected_nonfinite:
        return float("inf")
    if isinstance(criterion, Tolerance):
        return comparison.worst_ratio or 0.0
    if comparison.min_cosine is None or comparison.rms_error is None:
        return 0.0
    angle = (1 - comparison.min_cosine) / max(1 - criterion.min_cosine, 1e-12)
    rms = min(criterion.max_rms_error, 10 ** (-criterion.min_sqnr_db / 20))  # the stricter name of one quantity
    return max(angle, comparison.rms_error / rms, (comparison.p99_error or 0.0) / criterion.max_p99_error)


def real_rows(case: Case, shape: tuple[int, ...]) -> np.ndarray | None:
    """Returns where values of that shape are real, by the mask of the case; None: everywhere.

    Inside a model no axis has a name. The mask holds for values that begin with its shape, or with as many rows as it
    has positions.
    """
    if case.mask is None:
        return None
    mask: np.ndarray = case.inputs[case.mask] != 0
    if shape[: mask.ndim] == mask.shape:
        return mask.reshape(mask.shape + (1,) * (len(shape) - mask.ndim))
    if len(shape) == 2 and shape[0] == mask.size and shape[0] != mask.shape[0]:
        return mask.reshape(-1, 1)
    return None


def _in_order(graph: Dissection, layers: Sequence[MatchedLayer]) -> list[MatchedLayer]:
    return sorted((layer for layer in layers if layer.value in graph.place), key=lambda one: graph.place[one.value])


def _place(
    graph: Dissection, base: Dissection, layer: MatchedLayer, layers: Sequence[MatchedLayer], known: Arrays
) -> dict[str, Any]:
    """The fields of a finding that tell what the layer is, whatever its numbers are."""
    segment = base.segment(layer.value, known, shapes=False)
    inside = {name for node in segment.nodes for name in node.output} - {layer.value}
    operators = [node.op_type for node in graph.segment(layer.value, known).nodes if node.op_type != "Constant"]
    return {
        "module": layer.module,
        "kind": layer.kind,
        "value": layer.value,
        "covers": tuple(other.module for other in layers if other.value in inside),
        "operators": tuple(operators),
    }


def _measure(
    graph: Dissection,
    layers: Sequence[MatchedLayer],
    case: Case,
    criterion: Criterion,
    known: Arrays,
    options: Mapping[str, str] | None,
) -> dict[str, _Measured | str]:
    """Returns the numbers of each layer, or why there are none; leaves out those without a real position."""
    by_value = {layer.value: layer for layer in layers}
    found = {}
    for value, candidate in graph.run(list(by_value), case.inputs, known, options):
        measured = _compare(by_value[value], candidate, case, criterion)
        if measured is not None:
            found[value] = measured
    return found


def _compare(layer: MatchedLayer, candidate: np.ndarray, case: Case, criterion: Criterion) -> _Measured | str | None:
    """Returns the numbers, or why there are none; None: the layer has no real position in the case."""
    reference = layer.array
    real = real_rows(case, reference.shape)
    allowed = layer_criterion(criterion, reference, real)
    comparison = compare_output(layer.value, reference, candidate, allowed, real=real, dtype=str(candidate.dtype))
    if comparison.compared is None:
        return comparison.detail
    if not comparison.compared:
        return None
    return _Measured(comparison.max_abs_diff or 0.0, ratio(comparison, allowed), candidate.dtype)
