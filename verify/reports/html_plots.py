"""Plots of the HTML page, as inline SVG: the error of every check as a multiple of what is allowed, on a log axis.

Every row of a plot is an SVG of its own, placed by percentages: it is as wide as the reader's window allows, and its
text keeps its size. All rows share one axis, so that any two can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import TYPE_CHECKING

from onnxport.verify.reports.outline import Section, allowance_used, case_of
from onnxport.verify.reports.printable import number, single_line

if TYPE_CHECKING:
    from onnxport.verify.report import CheckResult

_MARGIN = 5.0
"""Percent of the width kept at either end, for zero and for infinity."""

_BARS_HEIGHT = 40
_MOST_TICKS = 5
_OPEN_CHARTS = 4
_SHAPES = (
    '<circle r="4.5"/>',
    '<rect x="-4" y="-4" width="8" height="8"/>',
    '<path d="M0-5.8L5.8 0L0 5.8L-5.8 0Z"/>',
    '<path d="M0-5.2L5.2 4.2H-5.2Z"/>',
    '<path d="M0 5.2L5.2-4.2H-5.2Z"/>',
    '<path d="M-5-2H-2V-5H2V-2H5V2H2V5H-2V2H-5Z"/>',
)
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """A log axis from 10**low to 10**high that has 1 on it. Positions are percentages of the width."""

    low: int
    high: int

    @classmethod
    def over(cls, ratios: Iterable[float]) -> Axis:
        """Returns the axis that holds every finite positive ratio, and a decade on either side of 1."""
        logs = [math.log10(ratio) for ratio in ratios if 0.0 < ratio < math.inf]
        return cls(min([-2, *map(math.floor, logs)]), max([1, *map(math.ceil, logs)]))

    def position(self, ratio: float) -> float:
        """Returns where a ratio lies; zero at the left end, what is infinite or not a number at the right one."""
        if math.isnan(ratio) or ratio == math.inf:
            return 100.0 - _MARGIN / 4
        if ratio <= 0.0:
            return _MARGIN / 4
        return _MARGIN + (100.0 - 2 * _MARGIN) * (math.log10(ratio) - self.low) / (self.high - self.low)

    def decades(self) -> list[int]:
        """Returns the powers of ten that have a line; where there are too many, those that are labelled."""
        return list(range(self.low, self.high + 1)) if self.high - self.low <= 2 * _MOST_TICKS else self.ticks()

    def ticks(self) -> list[int]:
        """Returns the powers of ten that are labelled; 0 (the limit) is always one of them."""
        step = math.ceil((self.high - self.low + 1) / _MOST_TICKS)
        return [power for power in range(self.low, self.high + 1) if power % step == 0]


def plots(found: Sequence[Section]) -> str:
    """Returns the plots of a report as HTML; empty if no check measured an error."""
    measured = [(section, _measured(section.checks)) for section in found]
    measured = [(section, points) for section, points in measured if points]
    if not measured:
        return ""
    axis = Axis.over(ratio for _, points in measured for ratio, _ in points)
    series = series_of(found)
    series = {name: series[name] for name in (section.variant or section.title for section, _ in measured)}
    drawn = (_distribution, _by_depth, _by_output)
    return _definitions(axis) + "".join(draw(measured, axis, series) for draw in drawn)


def series_of(found: Sequence[Section]) -> dict[str, int]:
    """Returns variant to the number of its colour and its mark, the same one in every plot of a page."""
    measured = [section for section in found if _measured(section.checks)]
    others = [section for section in found if section.variant]
    variants = dict.fromkeys(section.variant or section.title for section in (*measured, *others))
    return {variant: index % len(_SHAPES) for index, variant in enumerate(variants)}


_Measured = list[tuple[float, "CheckResult"]]


def _measured(checks: Sequence[CheckResult]) -> _Measured:
    return [(used, check) for check in checks if (used := allowance_used(check)) is not None]


def _definitions(axis: Axis) -> str:
    """What every row draws again: grid, limit and marks."""
    limit = axis.position(1.0)
    lines = "".join(
        f'<line class="gridline" x1="{x:.2f}%" x2="{x:.2f}%" y2="100%"/>'
        for x in (axis.position(10.0**power) for power in axis.decades() if power)
    )
    beyond = f'<rect class="beyond" x="{limit:.2f}%" width="{100 - limit:.2f}%" height="100%"/>'
    line = f'<line class="limit" x1="{limit:.2f}%" x2="{limit:.2f}%" y2="100%"/>'
    marks = "".join(f'<g id="mark{index}">{shape}</g>' for index, shape in enumerate(_SHAPES))
    return f'<svg class="defs" aria-hidden="true"><defs><g id="grid">{beyond}{lines}{line}</g>{marks}</defs></svg>\n'


def _axis_row(axis: Axis) -> str:
    labels = "".join(
        f'<text class="{"tick" if power else "one"}" x="{axis.position(10.0**power):.2f}%" y="12" text-anchor="middle">'
        f"{'10' + str(power).translate(_SUPERSCRIPT) if power else '1'}</text>"
        for power in axis.ticks()
    )
    plot = f'<div class="plot"><svg>{labels}</svg></div>'
    return f'<div class="row axis" aria-hidden="true"><span></span>{plot}<span></span></div>\n'


def _distribution(measured: Sequence[tuple[Section, _Measured]], axis: Axis, series: Mapping[str, int]) -> str:
    rows = "".join(
        _bars(section, [ratio for ratio, _ in points], axis, series[section.variant or section.title])
        for section, points in measured
    )
    return (
        '<section><h2 id="distribution">How close each variant is</h2>\n'
        '<p class="note">The error of every comparison as a multiple of the allowed error. Up to 1 passes. The number '
        'at the end of a row is the largest.</p>\n<div class="chart">\n'
        f"{rows}{_axis_row(axis)}</div></section>\n"
    )


def _bars(section: Section, ratios: Sequence[float], axis: Axis, series: int) -> str:
    """A histogram in half decades, zero and infinity at the ends; no bar straddles 1."""
    bins = 2 * (axis.high - axis.low)
    width = (100.0 - 2 * _MARGIN) / bins
    counted: dict[tuple[float, bool], int] = {}
    for ratio in ratios:
        fails = not ratio <= 1.0
        if not 0.0 < ratio < math.inf:
            left = 0.0 if ratio == 0.0 else 100.0 - width
        else:
            # A bin ends with its upper bound: a ratio of exactly 1 passes and belongs to the bar left of the line.
            index = min(max(math.ceil(2 * (math.log10(ratio) - axis.low)) - 1, 0), bins - 1)
            left = _MARGIN + width * index
        counted[left, fails] = counted.get((left, fails), 0) + 1
    tallest = max(counted.values())
    drawn = []
    for (left, fails), count in sorted(counted.items()):
        height = max(2.0, (_BARS_HEIGHT - 6) * count / tallest)
        place = f'x="{max(left, 0.0) + 0.15:.2f}%" y="{_BARS_HEIGHT - height:.1f}" height="{height:.1f}"'
        kind = "fails" if fails else f"v{series}"
        drawn.append(
            f'<rect class="bar {kind}" {place} width="{width - 0.3:.2f}%"><title>{count} comparisons</title></rect>'
        )
    told = f"{section.title}: {len(ratios)} comparisons, median {number(median(ratios))}, largest {number(max(ratios))}"
    return _row(
        f'{_escaped(section.title)} <span class="quiet">{len(ratios):,}</span>',
        f'<svg role="img" aria-label="{_escaped(told)}"><use href="#grid"/>'
        f'<svg height="{_BARS_HEIGHT}" y="8">{"".join(drawn)}</svg></svg>',
        max(ratios),
        kind="row bars",
    )


def _by_depth(measured: Sequence[tuple[Section, _Measured]], axis: Axis, series: Mapping[str, int]) -> str:
    """A chart per family of numbered outputs ("hidden_states.0", ...), a row per layer: how the error grows."""
    largest: dict[str, dict[int, dict[int, float]]] = {}
    for section, points in measured:
        mark = series[section.variant or section.title]
        for ratio, check in points:
            name, _, depth = (check.output or "").rpartition(".")
            if name and depth.isdecimal():
                title = " / ".join(filter(None, (section.component if section.component != "model" else None, name)))
                layer = largest.setdefault(title, {}).setdefault(int(depth), {})
                layer[mark] = max(layer.get(mark, 0.0), ratio, key=lambda r: math.inf if math.isnan(r) else r)
    if not largest:
        return ""
    names, charts = list(series), []
    for title, layers in largest.items():
        body = "".join(
            _dots(str(depth), [(ratio, mark) for mark, ratio in layers[depth].items()], axis, names)
            for depth in sorted(layers)
        )
        charts.append(f'<div class="chart"><h3>{_escaped(title)}</h3>\n{body}{_axis_row(axis)}</div>\n')
    return (
        '<section><h2 id="depth">Error by depth</h2>\n<p class="note">The largest error of each layer over all cases, '
        f"the first layer on top; the same axis as above.</p>\n{_legend(series)}{''.join(charts)}</section>\n"
    )


def _legend(series: Mapping[str, int]) -> str:
    entries = "".join(
        f'<li><svg><use class="mark v{index}" href="#mark{index}" x="50%" y="50%"/></svg>{_escaped(name)}</li>'
        for name, index in series.items()
    )
    return f'<ul class="legend">{entries}</ul>\n'


def _by_output(measured: Sequence[tuple[Section, _Measured]], axis: Axis, series: Mapping[str, int]) -> str:
    """A chart per output with a row per case, and one for checks over all outputs; the largest error first."""
    charts: dict[tuple[str | None, str | None, str], dict[str, list[tuple[float, int]]]] = {}
    for section, points in measured:
        for ratio, check in points:
            chart = (section.component, check.output, check.id if check.output else "")
            row = case_of(check) or "" if check.output else ", ".join(filter(None, (check.id, check.case)))
            points_of = charts.setdefault(chart, {}).setdefault(row, [])
            points_of.append((ratio, series[section.variant or section.title]))
    several = len({component for component, _, _ in charts if component}) > 1
    names = list(series)

    def largest(rows: Mapping[str, Sequence[tuple[float, int]]]) -> float:
        return max(ratio for points in rows.values() for ratio, _ in points)

    drawn = []
    for (component, output, check_id), rows in sorted(charts.items(), key=lambda chart: -largest(chart[1])):
        title = " / ".join(filter(None, (component if several else None, output or "All outputs together")))
        head = f'<h3>{_escaped(title)} <code class="quiet">{_escaped(check_id)}</code></h3>\n'
        body = "".join(_dots(row, points, axis, names) for row, points in sorted(rows.items()))
        drawn.append(f'<div class="chart">{head}{body}{_axis_row(axis)}</div>\n')
    shown, folded = drawn[:_OPEN_CHARTS], drawn[_OPEN_CHARTS:]
    more = f"<details><summary>{len(folded)} more outputs</summary>\n{''.join(folded)}</details>" if folded else ""
    return (
        '<section><h2 id="errors">Error by output and case</h2>\n'
        '<p class="note">The same axis as above. A mark at the left end is an exact match; one at the right end is NaN '
        f"or infinite.</p>\n{_legend(series)}{''.join(shown)}{more}</section>\n"
    )


def _dots(case: str, points: Sequence[tuple[float, int]], axis: Axis, names: Sequence[str]) -> str:
    told = [f"{names[index]} {number(ratio)}" for ratio, index in points]
    marks = "".join(
        f'<use class="mark v{index}" href="#mark{index}" x="{axis.position(ratio):.2f}%" y="50%">'
        f"<title>{_escaped(text)}</title></use>"
        for (ratio, index), text in zip(points, told, strict=True)
    )
    label = _escaped(f"{case}: {', '.join(told)}" if case else ", ".join(told))
    svg = f'<svg role="img" aria-label="{label}"><use href="#grid"/>{marks}</svg>'
    return _row(_escaped(case), svg, max(ratio for ratio, _ in points))


def _row(label: str, svg: str, largest: float, kind: str = "row") -> str:
    verdict = "" if largest <= 1.0 else " fail"
    value = f'<span class="value{verdict}">{number(largest, 3)}</span>'
    return f'<div class="{kind}"><span>{label}</span><div class="plot">{svg}</div>{value}</div>\n'


def _escaped(text: str) -> str:
    return escape(single_line(text))
