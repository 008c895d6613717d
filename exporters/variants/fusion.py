"""Fusion of attention, layer norms and activations, in a child process.

By onnxruntime.transformers; for a graph made by torch.export, by the fusions that come with its exporters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from onnxport.exporters.graph import TORCH_EXPORT, FusionHints
from onnxport.exporters.variants.child import Children
from onnxport.exporters.variants.operators import nodes

PATTERNS = {
    "albert": "bert",
    "bert": "bert",
    "camembert": "bert",
    "deberta": "bert",
    "deberta-v2": "bert",
    "distilbert": "bert",
    "electra": "bert",
    "modernbert": "bert",
    "mpnet": "bert",
    "roberta": "bert",
    "xlm-roberta": "bert",
}
"""transformers' model type to the one whose patterns onnxruntime.transformers applies, attention included."""

FUSION_KINDS = (
    "constant_folding",
    "gelu",
    "layer_norm",
    "attention",
    "skip_layer_norm",
    "embed_layer_norm",
    "bias_skip_layer_norm",
    "bias_gelu",
    "exporter_fusions",
    "tied_weights",
    "equal_weights",
)
"""What `fuse` can leave out, in the order in which it is done; later kinds build on earlier ones."""

_ATTENTION = ("com.microsoft:Attention", "com.microsoft:MultiHeadAttention")
_GUESS = "bert"
_TRANSFORMER_OPS = {"MatMul", "Softmax"}


@dataclass(frozen=True)
class FusedGraph:
    """A graph in the work folder. `fusions` counts new nodes by "domain:op"; without any, it is the graph as it was."""

    path: Path
    fusions: Mapping[str, int]
    notes: tuple[str, ...] = ()


def fuse(
    source: Path,
    hints: FusionHints,
    target: Path,
    children: Children,
    *,
    sizes: Mapping[str, int] | None = None,
    embeddings: bool = True,
    disabled: Sequence[str] = (),
) -> FusedGraph:
    """Fuses the graph at `source` into `target`, which lies in the same folder, in one of `children`.

    A model type that is not in PATTERNS gets a try where the graph looks like a transformer: layer norms and
    activations, not attention (tried on CLIP's causal text model, its fusion is wrong). `sizes` of the axes, where they
    are known, save the patterns from computing shapes with symbols. `embeddings` False leaves the
    embedding layer as it is; `disabled` leaves out some of FUSION_KINDS.

    Raises:
        VariantError: a fusion for a known model type broke, or the child process died.
    """
    model = onnx.load(source, load_external_data=False)
    if model.producer_name == TORCH_EXPORT:
        return _fuse_exported(source, target, children, disabled)
    known = PATTERNS.get(hints.model_type or "")
    patterns = known or (_GUESS if _looks_like_transformer(model) else None)
    heads, hidden = hints.num_heads, hints.hidden_size
    if heads <= 0 or hidden <= 0 or hidden % heads:
        heads = hidden = 0  # onnxruntime.transformers then looks for them in the graph
    result = children.run(
        "onnxport.exporters.variants.fusion_worker:fuse",
        source.parent,
        graph=source.name,
        fused=target.name,
        model_type=patterns,
        num_heads=heads,
        hidden_size=hidden,
        required=known is not None,
        sizes=dict(sizes or {}),
        embeddings=embeddings,
        disabled=list(disabled),
    )
    fusions: dict[str, int] = result["fusions"]
    notes = []
    if result["broke"]:
        notes.append(f"the {patterns!r} fusions, tried on model type {hints.model_type!r}, broke: {result['broke']}")
    told = f"{patterns!r} patterns; model type {hints.model_type!r}, {heads} heads, hidden size {hidden}"
    if not fusions:
        tried = told if patterns else "none were tried: there is no attention in the graph"
        notes.append(f"no fusion matched ({tried}); ONNX Runtime's own passes start from the graph as exported")
    elif not any(key in fusions for key in _ATTENTION):
        if result["inside"]:
            why = f"output {result['inside']!r} is made inside it, and the fused operator would not give it out"
        elif result["positional"]:
            why = "its mask or bias relates positions (causal, windowed, relative), which the fused operator would drop"
        elif known:
            why = f"nothing matched ({told})"
        else:
            why = f"model type {hints.model_type!r} is not one whose attention is known to fuse right"
        notes.append(f"attention was left as single operators: {why}")
    return FusedGraph(target if fusions else source, fusions, tuple(notes))


def _fuse_exported(source: Path, target: Path, children: Children, disabled: Sequence[str]) -> FusedGraph:
    result = children.run(
        "onnxport.exporters.variants.dynamo_fusion_worker:fuse",
        source.parent,
        graph=source.name,
        fused=target.name,
        disabled=list(disabled),
    )
    fusions: dict[str, int] = result["fusions"]
    notes = []
    if result["broke"]:
        notes.append(f"the fusions for graphs of torch.export broke, and were left out: {result['broke']}")
    elif not fusions:
        notes.append(
            f"no fusion of {result['by'] or 'any exporter'} matched; ONNX Runtime's own passes start from the graph as "
            "exported"
        )
    elif not any(key in fusions for key in _ATTENTION):
        notes.append(f"attention was left as single operators: no pattern of {result['by']} matched it")
    return FusedGraph(target if result["changed"] else source, fusions, tuple(notes))


def _looks_like_transformer(model: onnx.ModelProto) -> bool:
    return {node.op_type for node in nodes(model.graph)} >= _TRANSFORMER_OPS
