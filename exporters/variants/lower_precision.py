"""What the variants of lower precision have in common: a child process converts the fused graph, a session loads it."""

from __future__ import annotations

from pathlib import Path

import onnx

from onnxport.exporters.errors import VariantError
from onnxport.exporters.graph import Variant
from onnxport.exporters.onnx_writer import read_skeleton, split_large, write_model
from onnxport.exporters.variants import VariantBuilder, VariantKind
from onnxport.exporters.variants.fusion import FusedGraph
from onnxport.exporters.variants.operators import fused_since, import_used_domains, operator_counts, weights_precision


def convert(builder: VariantBuilder, kind: VariantKind, path: Path, fused: FusedGraph, worker: str) -> Variant:
    """Runs `worker` ("module:function" of `graph` and `target`, work files) on `fused`; writes its result to `path`.

    Raises:
        VariantError: the graph is not float32, the worker broke, or ONNX Runtime cannot load the result.
    """
    base = onnx.load(builder.source, load_external_data=False)
    precision = weights_precision(base)
    if precision != "float32":
        raise VariantError(
            f"{kind.name} is made from a float32 graph; {builder.graph.component} is {precision}. "
            "Export with --dtype float32."
        )
    target = builder.intermediate(f"{kind.name}.onnx")
    builder.children.run(worker, builder.work_dir, graph=fused.path.name, target=target.name)
    skeleton, weights = read_skeleton(target)
    import_used_domains(skeleton)
    del skeleton.graph.value_info[:]  # partly of the types before the conversion; nothing needs them
    del skeleton.metadata_props[:]
    weights += split_large(skeleton)
    data = write_model(skeleton, weights, path, external_data=builder.external_data)
    builder.children.run("onnxport.exporters.variants.session_worker:check_loads", path.parent, graph=path.name)

    after = operator_counts(skeleton)
    notes = list(fused.notes)
    if after == operator_counts(onnx.load(fused.path, load_external_data=False)):
        notes.append(f"nothing changed: no operator of {builder.graph.component} has a form in {kind.precision}")
    fusions = fused_since(operator_counts(base), after)
    return Variant(kind.name, path, data, kind.precision or precision, "none", fusions=fusions, notes=tuple(notes))
