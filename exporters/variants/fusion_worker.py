"""The part of fusion that runs in a child process, in the folder of the graph.

The graph is loaded without its weights. Fusions that merge weights (Q, K and V of attention) read just these, relative
to the working folder; embeddings and feed-forward weights, most of a model, are never touched and stay in the data file
that the fused graph shares with its source.
"""

from __future__ import annotations

import traceback
from collections.abc import Set
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.transformers.fusion_options import AttentionMaskFormat, FusionOptions
from onnxruntime.transformers.optimizer import optimize_by_fusion

from onnxport.exporters.errors import VariantError
from onnxport.exporters.onnx_writer import split_large, write_model
from onnxport.exporters.variants.attention_mask import compares_positions
from onnxport.exporters.variants.folding import fold_constants
from onnxport.exporters.variants.operators import fused_since, import_used_domains, operator_counts
from onnxport.exporters.variants.shape_inference import reductions_inferred
from onnxport.exporters.variants.tied_weights import multiply_by_tied_weights_in_place, share_equal_weights
from onnxport.verify.contract import size_of

_EMBEDDINGS = "embed_layer_norm"


def fuse(
    graph: str,
    fused: str,
    model_type: str | None,
    num_heads: int,
    hidden_size: int,
    required: bool,
    sizes: dict[str, int],
    embeddings: bool,
    disabled: list[str],
) -> dict[str, Any]:
    """Fuses `graph` and writes `fused` beside it (both are file names in the working folder).

    `model_type` is onnxruntime.transformers' own; None: no fusion of layers. `required` False: the type is a guess, and
    attention is left alone, and a fusion that breaks is the same as none that matches. `sizes`: of the axes, all
    different; empty: not known. `disabled`: see FUSION_KINDS.

    Returns:
        `fusions`: new nodes by "domain:op", empty when nothing matched (`fused` is then not written); `broke`: the
        error of a guess that broke, or None; `positional`: whether attention was left alone for its mask; `inside`: an
        output that is made inside attention, for which it was left alone, or None.
    """
    model = onnx.load(graph, load_external_data=False)
    before = operator_counts(model)
    inputs = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in model.graph.input]
    outputs = [output.name for output in model.graph.output]
    broke = None
    inside = None
    positional = False
    if model_type is not None:
        try:
            if "constant_folding" not in disabled:
                fold_constants(model)
            positional = compares_positions(model)
            attention = required and not positional
            kinds_off = {*disabled, *(() if attention else ("attention",)), *(() if embeddings else (_EMBEDDINGS,))}
            _write_sizes(model, sizes)
            model = _fuse_layers(model, model_type, num_heads, hidden_size, kinds_off)
            inside = _lost_output(model)
            if inside is not None:
                model = onnx.load(graph, load_external_data=False)
                fold_constants(model)
                _write_sizes(model, sizes)
                model = _fuse_layers(model, model_type, num_heads, hidden_size, kinds_off | {"attention"})
        except Exception as e:
            where = traceback.extract_tb(e.__traceback__)[-1]
            broke = f"{type(e).__name__}: {e} ({Path(where.filename).name}, {where.name})"
            if required:
                raise VariantError(
                    f"onnxruntime.transformers broke while fusing this graph as {model_type!r}: {broke}. Its patterns "
                    "expect a TorchScript graph with eager attention. --variant base needs no fusion."
                ) from e
            model = onnx.load(graph, load_external_data=False)
    if "tied_weights" not in disabled:
        multiply_by_tied_weights_in_place(model)
    if "equal_weights" not in disabled:
        share_equal_weights(model)
    fusions = fused_since(before, operator_counts(model))
    if not fusions:
        return {"fusions": {}, "broke": broke, "positional": positional, "inside": inside}
    found = [output.name for output in model.graph.output]
    if found != outputs:
        raise VariantError(
            f"fusion as {model_type!r} changed the outputs: {outputs} became {found}. --variant base needs no fusion."
        )
    # Fusion drops an input that nothing reads (token types, where a model knows only one), yet callers feed it.
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    import_used_domains(model)
    weights = split_large(model)
    write_model(model, weights, Path(fused), external_data="always")
    return {"fusions": fusions, "broke": broke, "positional": positional, "inside": inside}


def _write_sizes(model: onnx.ModelProto, sizes: dict[str, int]) -> None:
    """Puts numbers for the axes of the inputs while patterns are matched.

    They compare the shapes of what is added, and computing these with symbols takes minutes where lengths go through
    strides. Only the shapes of values follow from it; the inputs get their axes back.
    """
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if sizes and dim.dim_param:
                dim.dim_value = size_of(dim.dim_param, sizes)


def _lost_output(model: onnx.ModelProto) -> str | None:
    """Returns an output that no node makes any more (attention maps, when attention became one operator), or None."""
    made = {name for node in model.graph.node for name in node.output}
    made |= {tensor.name for tensor in (*model.graph.initializer, *model.graph.input)}
    return next((output.name for output in model.graph.output if output.name not in made), None)


def _fuse_layers(
    model: onnx.ModelProto, model_type: str, num_heads: int, hidden_size: int, kinds_off: Set[str]
) -> onnx.ModelProto:
    options = FusionOptions(model_type)
    for kind in kinds_off:
        setattr(options, f"enable_{kind}", False)
    if options.attention_mask_format == AttentionMaskFormat.MaskIndexEnd:
        # Lengths instead of masks: wrong for left-padded batches.
        options.use_raw_attention_mask(True)
    with reductions_inferred():
        fused: onnx.ModelProto = optimize_by_fusion(
            model, model_type=model_type, num_heads=num_heads, hidden_size=hidden_size, optimization_options=options
        ).model
    return fused
