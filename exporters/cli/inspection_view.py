"""An inspection as a person reads it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from onnxport.exporters.cli.console import COLUMNS, Console, format_size, wrap_lines
from onnxport.verify.contract import MANIFEST_NAME

if TYPE_CHECKING:
    from onnxport.exporters.inspection import InspectedComponent, InspectedVariant, Inspection
    from onnxport.exporters.manifest import Preprocessing
    from onnxport.verify.contract import AxisRange, TensorSpec

_TIED = "\xa0"
"""A space at which no line is broken."""


def show_inspection(console: Console, seen: Inspection, *, top: int) -> None:
    """Prints what it is and where it came from, then every component; `top`: operators to list per component."""
    for line in _header(seen):
        console.data(line)
    for name, component in seen.components.items():
        console.data(f"\n{name}")
        axes = _axes(component.axes) if seen.kind == "bundle" else ()  # of a bare file, nothing but names is known
        for line in (*_tensors(component), *axes, *_variants(component.variants)):
            console.data(textwrap.indent(line, "  "))
        _show_operators(console, component.variants, top)


def _header(seen: Inspection) -> Iterator[str]:
    kind = "bundle" if seen.kind == "bundle" else "ONNX file"
    yield f"{seen.path}: {kind}, {format_size(seen.size_bytes)}"
    rows: dict[str, str] = {}
    if seen.source is not None:
        source = seen.source
        revision = f" at {source.revision}" if source.revision else ""
        rows["source"] = f"{source.model}{revision}, {source.architecture}, {source.task}"
    if seen.toolchain is not None:
        made = seen.toolchain
        transformers = f", transformers {made.transformers}" if made.transformers else ""
        rows["made with"] = f"torch {made.torch}{transformers}, onnxruntime {made.onnxruntime}, {made.engine}"
        rows["made on"] = f"{made.platform}, Python {made.python}"
    if seen.verification is not None:
        verified = seen.verification
        rows["verified"] = (
            f"{verified.verdict}, suite {verified.suite}, rtol {verified.rtol:g}, atol {verified.atol:g}"
            if verified.verdict != "skip"
            else "NOT verified: exported with --no-verify"
        )
    if seen.preprocessing is not None:
        rows["inputs"] = _preprocessing(seen.preprocessing)
        rows["input files"] = ", ".join(seen.preprocessing.files) or "none"
    if seen.manifest_intact is not None:
        rows[MANIFEST_NAME] = "as it was written" if seen.manifest_intact else "CHANGED since it was written"
    yield from _aligned(rows)


def _preprocessing(made: Preprocessing) -> str:
    parts = [
        f"pads {made.padding_side}" if made.padding_side else "",
        f"at most {made.max_length} tokens" if made.max_length else "",
        f"{made.pooling} pooling" if made.pooling else "",
        "normalised" if made.normalize else "",
        f"labels {', '.join(made.labels.values())}" if made.labels else "",
    ]
    return "; ".join(part for part in parts if part) or "not known"


def _tensors(component: InspectedComponent) -> Iterator[str]:
    specs = [("inputs", component.inputs), ("outputs", component.outputs)]
    width = max((len(spec.name) for _, group in specs for spec in group), default=0)
    for title, group in specs:
        yield title
        for spec in group:
            yield _filled(f"  {spec.name:<{width}}  {spec.dtype:<8} {_shape(spec)}", 6)


def _shape(spec: TensorSpec) -> str:
    return f"[{', '.join(str(dim) for dim in spec.shape)}]"


def _axes(axes: Mapping[str, AxisRange]) -> Iterator[str]:
    rows = {}
    for name, axis in axes.items():
        sizes = f"{axis.min} to {axis.max}" if axis.max is not None else f"{axis.min} and up"
        if axis.fixed is not None:
            sizes = f"fixed at {axis.fixed}"
        proven = ", ".join(str(size) for size in axis.proven)
        rows[name] = f"{sizes}, proven at {proven}" if proven else f"{sizes}, not proven"
    if rows:
        yield "axes"
        yield from _aligned(rows)


def _variants(variants: Mapping[str, InspectedVariant]) -> Iterator[str]:
    yield "variants" if len(variants) > 1 else "variant"
    width = max(map(len, variants))
    for name, variant in variants.items():
        for number, line in enumerate(_variant(variant)):
            yield _filled(f"  {name if number == 0 else '':<{width}}  {line}", width + 6)


def _variant(variant: InspectedVariant) -> Iterator[str]:
    yield f"{' + '.join((variant.file, *variant.external_data))}, {format_size(variant.size_bytes)}"
    if variant.missing_data:
        yield f"MISSING: {', '.join(variant.missing_data)}"
    precision = variant.precision or "precision unknown"
    if variant.weights is not None and variant.weights.bytes_by_dtype:
        stored = sorted(variant.weights.bytes_by_dtype.items(), key=lambda item: -item[1])
        precision += f" ({', '.join(f'{dtype} {format_size(size)}' for dtype, size in stored if size >= 1000)})"
    yield precision if variant.precision else precision.removeprefix("precision unknown (").removesuffix(")")
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in variant.opsets.items())
    yield f"opsets {opsets}; IR version {variant.ir_version}"
    # Where ONNX Runtime's passes were not run, "level none" beside fused operators would only puzzle.
    level = f"level {variant.level}, " if variant.level not in (None, "none") else ""
    portable = "portable" if variant.portable else "for the machine it was made on only"
    yield f"{level}{portable}, onnxruntime {variant.min_onnxruntime} or newer"
    if variant.fusions:
        yield "fused: " + ", ".join(f"{count}{_TIED}{op.partition(':')[2]}" for op, count in variant.fusions.items())
    if variant.session_options:
        yield "load with " + ", ".join(f"{key}={value}" for key, value in variant.session_options.items())
    yield from (f"note: {note}" for note in variant.notes)


def _show_operators(console: Console, variants: Mapping[str, InspectedVariant], top: int) -> None:
    from rich.table import Table

    names = list(dict.fromkeys(op for variant in variants.values() for op in variant.ops))
    most = {op: max(variant.ops.get(op, 0) for variant in variants.values()) for op in names}
    shown = sorted(names, key=lambda op: (-most[op], op))[:top]
    rest = f", {len(names) - len(shown)} more not shown" if len(names) > len(shown) else ""
    console.data(f"  operators{rest}")
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="", show_header=len(variants) > 1)
    table.add_column("    ")
    for name in variants:
        table.add_column(name, justify="right")
    for op in shown:
        table.add_row(
            f"    {op.removeprefix('ai.onnx:')}", *(str(variant.ops.get(op, "")) for variant in variants.values())
        )
    console.data(table)


def _aligned(rows: Mapping[str, str]) -> Iterator[str]:
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        yield _filled(f"  {name:<{width}}  {value}", width + 4)


def _filled(line: str, indent: int) -> str:
    """Wraps a line so that it still fits into 80 columns when it is indented by two."""
    return wrap_lines(line, COLUMNS - 2, " " * indent).replace(_TIED, " ")
