"""What a graph is made of: operators by domain, and the domains it has to import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import onnx

MICROSOFT = "com.microsoft"

_FUSED_ONNX_OPS = ("LayerNormalization", "SimplifiedLayerNormalization", "Gelu")


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yields every node of a graph and of its sub-graphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for sub in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from nodes(sub)


def operator_counts(model: onnx.ModelProto) -> dict[str, int]:
    """Returns the number of nodes by "domain:op"; the ONNX domain is "ai.onnx"."""
    counts = Counter(f"{node.domain or 'ai.onnx'}:{node.op_type}" for node in nodes(model.graph))
    return dict(sorted(counts.items()))


def fused_since(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Returns the nodes that fusion brought: contrib and composite operators that `after` has more of."""
    return {
        key: count - before.get(key, 0)
        for key, count in after.items()
        if count > before.get(key, 0) and (key.startswith(f"{MICROSOFT}") or key.split(":")[1] in _FUSED_ONNX_OPS)
    }


def import_used_domains(model: onnx.ModelProto) -> None:
    """Drops imports of domains that no node uses, and imports com.microsoft where it is used and missing."""
    used = {_canonical(node.domain) for node in nodes(model.graph)} | {""}
    for function in model.functions:
        used |= {function.domain, *(_canonical(node.domain) for node in function.node)}
    kept = {_canonical(entry.domain): entry.version for entry in model.opset_import if _canonical(entry.domain) in used}
    if MICROSOFT in used:
        kept.setdefault(MICROSOFT, 1)
    del model.opset_import[:]
    model.opset_import.extend(onnx.helper.make_opsetid(domain, version) for domain, version in sorted(kept.items()))


def weights_precision(model: onnx.ModelProto) -> str:
    """Returns numpy's name of the float type that most weights have ("float32" where there are none)."""
    elements: Counter[str] = Counter()
    for tensor in model.graph.initializer:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).name
        if "float" in dtype:
            size = 1
            for dim in tensor.dims:
                size *= dim
            elements[dtype] += size
    return elements.most_common(1)[0][0] if elements else "float32"


def _canonical(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
