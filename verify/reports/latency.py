"""What was measured of latency, for a reader: in the order of the other sections, the smallest case first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxport.verify.reports.outline import sections
from onnxport.verify.reports.printable import number
from onnxport.verify.reports.tables import Table

if TYPE_CHECKING:
    from onnxport.verify.report import Latency, Report

TITLE = "Latency"


@dataclass(frozen=True)
class Timed:
    """The variants of one component at one size; `component` is None where there is only one."""

    component: str | None
    size: str
    variants: tuple[Latency, ...]

    @property
    def title(self) -> str:
        """ "decoder_model: batch 2, sequence 16"."""
        return ": ".join(filter(None, (self.component, self.size)))


def timed(report: Report) -> list[Timed]:
    """Returns what was measured component by component and size by size; nothing if it was not asked for."""
    measured = report.latency or ()
    several = len({one.component for one in measured}) > 1
    place = {(section.component, section.variant): index for index, section in enumerate(sections(report))}
    found: dict[tuple[str, str], list[Latency]] = {}
    for one in sorted(measured, key=lambda one: place.get((one.component, one.variant), len(place))):
        found.setdefault((one.component, one.case), []).append(one)
    components = list(dict.fromkeys(component for component, _ in found))
    ordered = sorted(found, key=lambda key: components.index(key[0]))  # cases keep their order: the smallest first
    return [Timed(key[0] if several else None, size(found[key][0]), tuple(found[key])) for key in ordered]


def size(measured: Latency) -> str:
    """ "batch 2, sequence 16"; the case's name where no axis has one."""
    return ", ".join(f"{axis} {length}" for axis, length in measured.sizes.items()) or measured.case


def how(report: Report) -> str:
    """Returns how it was measured, without a full stop: "A process for each variant, ...; 2 threads"."""
    measured = report.latency or ()
    runs = _range([one.runs for one in measured])
    threads = sorted({one.threads for one in measured if one.threads is not None})
    told = f"; {_range(threads)} thread{'' if threads == [1] else 's'}" if threads else ""
    return f"A process for each variant, warmed up; {runs} runs for each size{told}"


def latency_table(report: Report) -> Table | None:
    """Returns a row for each variant and size; None if it was not asked for."""
    rows = [
        (
            group.title,
            one.variant,
            *(number(value, 3) for value in (one.p50_ms, one.p90_ms, one.min_ms)),
            str(one.runs),
            "" if one.threads is None else str(one.threads),
        )
        for group in timed(report)
        for one in group.variants
    ]
    head = ("size", "variant", "p50 ms", "p90 ms", "min ms", "runs", "threads")
    return Table(TITLE, head, tuple(rows)) if rows else None


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
