"""The plot of latencies on the HTML page: a chart for each size, a bar for each variant, milliseconds from zero."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from onnxport.verify.reports.latency import TITLE, Timed, how, timed
from onnxport.verify.reports.printable import number, single_line

if TYPE_CHECKING:
    from onnxport.verify.report import Latency, Report

_MOST_TICKS = 4
_BAR = 'y="5" height="14"'
_STEPS = (1.0, 2.0, 5.0, 10.0)
_WIDTH = 92.0
"""Percent of a row that the axis takes; the rest is for the label of its last tick."""


def latency_plot(report: Report, series: Mapping[str, int]) -> str:
    """Returns the plot as HTML; empty if latency was not measured.

    Args:
        report: bars of one chart share an axis, charts do not: a long text takes a hundred times a short one.
        series: variant to the number of its colour, as in the other plots.
    """
    groups = timed(report)
    if not groups:
        return ""
    note = f"Milliseconds for one run. A bar ends at the median, its light part at the 90th percentile. {how(report)}."
    charts = "".join(_chart(group, series) for group in groups)
    return f'<section><h2 id="latency">{TITLE}</h2>\n<p class="note">{_escaped(note)}</p>\n{charts}</section>\n'


def _chart(group: Timed, series: Mapping[str, int]) -> str:
    ticks = axis_ticks(max(one.p90_ms for one in group.variants))
    rows = "".join(_bar(one, ticks, series.get(one.variant, 0)) for one in group.variants)
    return f'<div class="chart"><h3>{_escaped(group.title)}</h3>\n{rows}{_axis(ticks)}</div>\n'


def _bar(one: Latency, ticks: list[float], series: int) -> str:
    told = f"{one.variant}: median {number(one.p50_ms, 3)} ms, 90th percentile {number(one.p90_ms, 3)} ms"
    median, slow = _position(one.p50_ms, ticks), _position(one.p90_ms, ticks)
    grid = "".join(
        f'<line class="gridline" x1="{x:.2f}%" x2="{x:.2f}%" y2="100%"/>' for x in (_position(t, ticks) for t in ticks)
    )
    bars = (
        f'<rect class="bar slow v{series}" {_BAR} x="{median:.2f}%" width="{slow - median:.2f}%"/>'
        f'<rect class="bar v{series}" {_BAR} width="{median:.2f}%"><title>{_escaped(told)}</title></rect>'
    )
    svg = f'<svg role="img" aria-label="{_escaped(told)}">{grid}{bars}</svg>'
    value = f'<span class="value">{number(one.p50_ms, 3)} ms</span>'
    return f'<div class="row"><span>{_escaped(one.variant)}</span><div class="plot">{svg}</div>{value}</div>\n'


def _axis(ticks: list[float]) -> str:
    labels = "".join(
        f'<text class="tick" x="{_position(tick, ticks):.2f}%" y="12" text-anchor="{"middle" if tick else "start"}">'
        f"{tick:g}</text>"
        for tick in ticks
    )
    plot = f'<div class="plot"><svg>{labels}</svg></div>'
    return f'<div class="row axis" aria-hidden="true"><span></span>{plot}<span></span></div>\n'


def axis_ticks(largest: float) -> list[float]:
    """Returns round numbers from 0 to the first that is not less than the largest value, which is above 0."""
    decade = 10.0 ** math.floor(math.log10(largest / _MOST_TICKS))
    step = next(decade * factor for factor in _STEPS if decade * factor * _MOST_TICKS >= largest)
    return [step * index for index in range(math.ceil(largest / step - 1e-9) + 1)]


def _position(milliseconds: float, ticks: list[float]) -> float:
    return _WIDTH * milliseconds / ticks[-1]


def _escaped(text: str) -> str:
    return escape(single_line(text))
