"""A localisation as a person reads it: layers in the order in which they are computed, then what is to blame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.exporters.cli.console import Console

if TYPE_CHECKING:
    from onnxport.exporters.bundle import Bundle
    from onnxport.exporters.localization.findings import LayerFinding, Localization, VariantFinding

_AROUND = 3
_STYLE = {"agrees": "green", "inherited": "yellow", "diverges": "bold red", "unmatched": "yellow"}


def show_localization(console: Console, result: Localization, folder: Path, *, all_layers: bool) -> None:
    """Prints each variant's layers (around the first that diverges, unless `all_layers`) and what is wrong with it."""
    for finding in result.variants:
        _show_layers(console, finding, all_layers=all_layers)
        for output, detail in finding.outputs.items():
            console.data(f"output {output}, case {finding.case}: {detail}")
        console.data(f"{finding.variant}: {finding.summary}", style=_STYLE[finding.verdict])
        if finding.reproduction is not None:
            console.data(f"{finding.variant}: to see it, python {folder / finding.reproduction / 'reproduce.py'}")
        console.data("")
    console.data(result.verdict, style=_STYLE[result.verdict])


def show_other_failures(console: Console, bundle: Bundle) -> None:
    """Says which checks failed when the bundle was exported that no comparison of layers can explain: a lost fusion."""
    report = bundle.report()
    failed = [check for check in report.checks if check.verdict == "fail"] if report is not None else []
    without_numbers = {
        check.id: None for check in failed if check.max_abs_diff is None and not check.id.startswith("outputs.")
    }
    if without_numbers:
        told = f"the export failed on {', '.join(without_numbers)}, which is no numeric difference"
        console.data(f"{told}: see onnxport verify {bundle.path}")


def _show_layers(console: Console, finding: VariantFinding, *, all_layers: bool) -> None:
    """`alone` is the ratio of a layer on PyTorch's own inputs. Names stand last: they are of any length."""
    if not finding.layers:
        return
    console.data(
        f"{'difference':>10}  {'ratio':>8}  {'alone':>8}  {'verdict':9}  layer of {finding.variant}", style="bold"
    )
    last = -1
    for number in range(len(finding.layers)) if all_layers else _interesting(finding.layers, finding.first):
        _leave_out(console, finding.layers[last + 1 : number])
        layer = finding.layers[number]
        ratios = f"{_number(layer.ratio):>8}  {_number(layer.alone_ratio):>8}"
        numbers = f"{_number(layer.max_abs_diff):>10}  {ratios}"
        console.data(f"{numbers}  {layer.verdict:9}  {_name(layer)}", style=_STYLE[layer.verdict])
        last = number
    _leave_out(console, finding.layers[last + 1 :])


def _interesting(layers: Sequence[LayerFinding], first: int | None) -> list[int]:
    """What diverges, the neighbours of the first, and the end; where all agree, the layer that comes nearest to not."""
    centre = first
    if centre is None:
        centre = max(range(len(layers)), key=lambda number: layers[number].alone_ratio or 0.0)
    diverging = [number for number, layer in enumerate(layers) if layer.verdict == "diverges"]
    near = range(max(0, centre - _AROUND), min(len(layers), centre + _AROUND + 1))
    return sorted({*near, *diverging[: 2 * _AROUND], len(layers) - 1})


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _leave_out(console: Console, layers: Sequence[LayerFinding]) -> None:
    if layers:
        counts = Counter(layer.verdict for layer in layers)
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        console.data(f"{'...':>10}  {told}")


def _name(layer: LayerFinding) -> str:
    name = layer.module or "(the model)"
    return f"{name} with {', '.join(_short(layer, other) for other in layer.covers)}" if layer.covers else name


def _short(layer: LayerFinding, other: str) -> str:
    """`..dense` for a module in the same parent."""
    parent = layer.module.rpartition(".")[0]
    return f"..{other[len(parent) + 1 :]}" if parent and other.startswith(f"{parent}.") else other
