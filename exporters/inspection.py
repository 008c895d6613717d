"""What is in a bundle or in any ONNX file, as data; `model_dump(mode="json")` is its JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from onnxport.exporters.bundle import Bundle, load_bundle
from onnxport.exporters.errors import BundleError
from onnxport.exporters.manifest import (
    MANIFEST_NAME,
    Component,
    Preprocessing,
    Source,
    Toolchain,
    VariantEntry,
    Verification,
)
from onnxport.exporters.onnx_facts import FileFacts, Weights, read_facts
from onnxport.verify.contract import AxisRange, BundlePath, Model, TensorSpec
from onnxport.verify.graph_facts import is_named


class InspectedVariant(Model):
    """One graph file. Opsets, operators and sizes are the file's own; the rest is what the manifest claims.

    Attributes:
        missing_data: external data that the graph names and that is not there.
        precision, level: None for a file that is in no bundle.
        fusions: for a file that is in no bundle: all operators of ONNX Runtime's own domains.
        weights, producer: None where the file is not ONNX (.ort); opsets and operators are then the manifest's.
    """

    file: str
    external_data: tuple[str, ...]
    missing_data: tuple[str, ...]
    size_bytes: int
    precision: str | None
    level: str | None
    opsets: dict[str, int]
    ir_version: int
    producer: str | None
    ops: dict[str, int]
    fusions: dict[str, int]
    weights: Weights | None
    session_options: dict[str, str]
    portable: bool
    min_onnxruntime: str
    notes: tuple[str, ...]


class InspectedComponent(Model):
    """One graph of the model, in all its variants. `axes` of a bare file: the names in its inputs, of unknown range."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    axes: dict[str, AxisRange]
    variants: dict[str, InspectedVariant]


class Inspection(Model):
    """A bundle, or a single ONNX file, of which source, toolchain, preprocessing and verification are not known.

    `path` is as it was given; `size_bytes` is everything together. `manifest_intact`: whether bundle.json is as it was
    sealed; the other files are checked by `verify_bundle`.
    """

    kind: Literal["bundle", "onnx"]
    path: str
    size_bytes: int
    components: dict[str, InspectedComponent]
    source: Source | None = None
    toolchain: Toolchain | None = None
    preprocessing: Preprocessing | None = None
    verification: Verification | None = None
    manifest_intact: bool | None = None
    files: tuple[BundlePath, ...] = ()


def inspect(path: str | os.PathLike[str]) -> Inspection:
    """Looks into a bundle folder or an ONNX file without loading weights or opening a session.

    Raises:
        BundleError: nothing is there, or the folder is no bundle.
        ModelFileError: a graph file is missing or is not an ONNX model.
    """
    location = Path(path)
    if not location.exists():
        raise BundleError(f"{location} does not exist; give the folder of a bundle or an ONNX file.")
    if location.is_dir():
        return _of_bundle(load_bundle(location), str(path))
    return _of_file(read_facts(location), str(path))


def _of_bundle(bundle: Bundle, path: str) -> Inspection:
    manifest = bundle.manifest
    recorded = sum(record.size_bytes for record in manifest.files)
    return Inspection(
        kind="bundle",
        path=path,
        size_bytes=recorded + (bundle.path / MANIFEST_NAME).stat().st_size,
        components={name: _component(bundle, component) for name, component in manifest.components.items()},
        source=manifest.source,
        toolchain=manifest.toolchain,
        preprocessing=manifest.preprocessing,
        verification=manifest.verification,
        manifest_intact=bundle.digest_ok(),
        files=tuple(record.path for record in manifest.files),
    )


def _component(bundle: Bundle, component: Component) -> InspectedComponent:
    return InspectedComponent(
        inputs=component.inputs,
        outputs=component.outputs,
        axes=component.axes,
        variants={name: _variant(bundle.path, entry) for name, entry in component.variants.items()},
    )


def _variant(root: Path, entry: VariantEntry) -> InspectedVariant:
    facts = read_facts(root / entry.file) if Path(entry.file).suffix != ".ort" else None
    recorded_data = () if entry.external_data is None else (entry.external_data,)
    return InspectedVariant(
        file=entry.file,
        external_data=facts.external_data if facts else recorded_data,
        missing_data=facts.missing_data if facts else (),
        size_bytes=facts.size_bytes if facts else entry.size_bytes,
        precision=entry.precision,
        level=entry.level,
        opsets=dict(facts.opsets) if facts else entry.opsets,
        ir_version=facts.ir_version if facts else entry.ir_version,
        producer=facts.producer if facts else None,
        ops=dict(facts.ops) if facts else entry.ops,
        fusions=entry.fusions,
        weights=facts.weights if facts else None,
        session_options=entry.session_options,
        portable=entry.portable,
        min_onnxruntime=entry.min_onnxruntime,
        notes=entry.notes,
    )


def _of_file(facts: FileFacts, path: str) -> Inspection:
    names = [dim for spec in facts.inputs for dim in spec.shape if is_named(dim)]
    variant = InspectedVariant(
        file=facts.path.name,
        external_data=facts.external_data,
        missing_data=facts.missing_data,
        size_bytes=facts.size_bytes,
        precision=None,
        level=None,
        opsets=dict(facts.opsets),
        ir_version=facts.ir_version,
        producer=facts.producer,
        ops=dict(facts.ops),
        fusions={op: count for op, count in facts.ops.items() if op.startswith("com.microsoft")},
        weights=facts.weights,
        session_options={},
        portable=facts.portable,
        min_onnxruntime=facts.min_onnxruntime,
        notes=(),
    )
    component = InspectedComponent(
        inputs=facts.inputs,
        outputs=facts.outputs,
        axes={name: AxisRange() for name in names},
        variants={"file": variant},
    )
    return Inspection(kind="onnx", path=path, size_bytes=facts.size_bytes, components={facts.path.stem: component})
