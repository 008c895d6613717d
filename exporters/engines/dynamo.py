"""torch.export: the graph comes from a trace with symbolic sizes, which refuses what depends on data.

torch is asked for the graph as it translates it. Parameters then become graph inputs, so that onnxscript's optimiser
sees none of them and copies none, and `weights` replaces them by initializers that stream from the module.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
import onnx
import onnx_ir
import torch
from torch import Tensor, nn

from onnxport.exporters.engines.agreement import require_agreement, require_inputs_that_matter, sign
from onnxport.exporters.engines.by_keyword import ByKeyword
from onnxport.exporters.engines.export_failure import describe_failure
from onnxport.exporters.engines.kept_attributes import kept_attributes
from onnxport.exporters.engines.module_scopes import keep_module_scopes, metadata_survives_conversion
from onnxport.exporters.engines.transformers_exporters import export_with_transformers, holds_transformers_model
from onnxport.exporters.engines.weights import attach_weights
from onnxport.exporters.errors import EngineError, ReadBackError
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.exporters.graph import TORCH_EXPORT, TracedModel
from onnxport.verify.contract import GraphContract

_INLINE_BYTES = 1024
"""Below this, a buffer stays in the graph, where it can be folded: positions, scalars."""


def export_graph(exportable: Exportable, contract: GraphContract) -> TracedModel:
    """See `ExportFunction`."""
    contract = contract.written()
    names = tuple(spec.name for spec in contract.inputs)
    inputs = to_tensors(exportable.sample(exportable.example, np.random.default_rng(0)))
    inputs = {name: inputs[name] for name in names}
    _require_telling_sizes(inputs, contract)
    wrapper = ByKeyword(exportable, names)
    with kept_attributes(wrapper):
        program = _export(wrapper, exportable, inputs, contract)
    _require_free_axes(program, exportable, contract)
    _require_opset(program, contract)
    parameters = _parameters_to_inputs(program)
    _name_outputs(program, contract)
    _optimize(program, exportable)
    model: onnx.ModelProto = onnx_ir.to_proto(program)
    require_inputs_that_matter(model, exportable, inputs)
    weights = attach_weights(model, parameters, names)
    require_agreement(model, contract)
    inferred = _inferred_shapes(model, _axis_names(program, contract), {weight.name for weight in weights})
    sign(model, contract)
    model.graph.value_info.extend(inferred)
    model.producer_name, model.producer_version = TORCH_EXPORT, torch.__version__
    return TracedModel(model, weights)


def _require_telling_sizes(inputs: Mapping[str, Tensor], contract: GraphContract) -> None:
    """torch.export takes a size of 1 for a constant, and may take two axes of one size for the same."""
    sizes: dict[str, int] = {}
    for spec in contract.inputs:
        for dim, size in zip(spec.shape, inputs[spec.name].shape, strict=True):
            if isinstance(dim, str):
                sizes[dim] = size
    shared = [size for size, count in Counter(sizes.values()).items() if count > 1]
    for dim, size in sizes.items():
        if size < 2 or size in shared:
            shown = ", ".join(f"{name} {n}" for name, n in sizes.items())
            raise EngineError(
                f"the example has {shown}; torch.export needs sizes of at least 2 that all differ, or it takes axes "
                f"for constants or for one another. Fix an axis that has one size only (--static {dim}={size}), or "
                "give an example of other sizes"
            )


def _export(
    wrapper: ByKeyword, exportable: Exportable, inputs: Mapping[str, Tensor], contract: GraphContract
) -> onnx_ir.Model:
    named = {
        spec.name: {i: dim for i, dim in enumerate(spec.shape) if isinstance(dim, str)} for spec in contract.inputs
    }
    opset = contract.opsets[""]
    with _quiet(), metadata_survives_conversion():
        try:
            if holds_transformers_model(exportable.module):
                hints = {name: dict.fromkeys(dims, torch.export.Dim.DYNAMIC) for name, dims in named.items()}
                return export_with_transformers(wrapper, inputs, hints, opset)
            program = torch.onnx.export(
                wrapper,
                tuple(inputs.values()),
                dynamo=True,
                opset_version=opset,
                input_names=list(inputs),
                dynamic_shapes=(tuple(named.values()),),
                optimize=False,
                verbose=False,
            )
            assert program is not None
            return program.model
        except Exception as e:
            told = describe_failure(e, exportable.module, tuple(inputs))
            raise EngineError(f"torch.export cannot export {exportable.source.architecture}: {told}") from e


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporters print and log their progress; what matters of it is in the exception."""
    loggers = [logging.getLogger(name) for name in ("torch", "transformers", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _require_free_axes(program: onnx_ir.Model, exportable: Exportable, contract: GraphContract) -> None:
    """An axis that the module can take at one size only is written as that size, without a word."""
    for value, spec in zip(program.graph.inputs, contract.inputs, strict=True):
        assert value.shape is not None
        for position, (written, asked) in enumerate(zip(value.shape, spec.shape, strict=True)):
            if isinstance(asked, str) and isinstance(written, int):
                raise EngineError(
                    f"torch.export fixed axis {asked!r} (dimension {position} of {spec.name}) at {written}: something "
                    f"in {exportable.source.architecture} holds for that size only. Write forward without the number, "
                    f"or fix the axis with --static {asked}={written}"
                )


def _require_opset(program: onnx_ir.Model, contract: GraphContract) -> None:
    """torch writes another opset without an error where it cannot convert."""
    written, asked = program.opset_imports.get(""), contract.opsets[""]
    if written != asked:
        raise ReadBackError(
            f"torch {torch.__version__} wrote opset {written}, asked {asked}: it could not convert the graph; choose "
            f"opset {written} (--opset) or another engine (--engine)"
        )


def _parameters_to_inputs(program: onnx_ir.Model) -> dict[str, Tensor]:
    """Takes the module's tensors out of the graph; returns them by the name of the input that stands for each."""
    taken: dict[str, Tensor] = {}
    for name, value in list(program.graph.initializers.items()):
        constant = value.const_value
        tensor = getattr(constant, "raw", None)
        if constant is None or not isinstance(tensor, Tensor):
            continue
        small = tensor.numel() * tensor.element_size() < _INLINE_BYTES
        if small and not isinstance(tensor, nn.Parameter):
            continue
        value.shape, value.dtype = onnx_ir.Shape(tensor.shape), constant.dtype
        del program.graph.initializers[name]
        value.const_value = None
        program.graph.inputs.append(value)
        taken[name] = tensor.detach()
    return taken


def _name_outputs(program: onnx_ir.Model, contract: GraphContract) -> None:
    """Gives outputs the contract's names; one that is an input, or stands twice, goes through an Identity."""
    names = {spec.name for spec in contract.outputs}
    for value, given in zip(program.graph.inputs, contract.inputs, strict=False):  # parameters follow
        value.name = given.name
    for graph in program.graphs():
        for value in (*graph.inputs, *(output for node in graph for output in node.outputs)):
            if value.name in names and not value.is_graph_input():
                value.name = f"{value.name}.inner"
    seen: set[onnx_ir.Value] = set()
    for position, (value, spec) in enumerate(zip(list(program.graph.outputs), contract.outputs, strict=True)):
        if value.is_graph_input() or value.is_initializer() or value in seen:
            identity = onnx_ir.node("Identity", [value])
            copy = identity.outputs[0]
            copy.shape, copy.type = value.shape, value.type
            program.graph.append(identity)
            program.graph.outputs[position] = value = copy
        value.name = spec.name
        seen.add(value)


def _axis_names(program: onnx_ir.Model, contract: GraphContract) -> dict[str, str]:
    """What torch calls the sizes ("s72") by what the contract calls them; torch may have several names for one."""
    names: dict[str, str] = {}
    for value, spec in zip(program.graph.inputs, contract.inputs, strict=False):  # parameters follow
        for written, asked in zip(value.shape or (), spec.shape, strict=True):
            symbol = getattr(written, "value", None)
            if isinstance(symbol, str) and symbol.isidentifier() and isinstance(asked, str):
                names[symbol] = _sum_of(asked.split("+"))
    return names


def _sum_of(parts: Iterable[str]) -> str:
    return " + ".join(sorted(part.strip() for part in parts))


def _inferred_shapes(
    model: onnx.ModelProto, names: Mapping[str, str], weights: Collection[str]
) -> list[onnx.ValueInfoProto]:
    """Shapes of the values inside the graph, in the contract's names: fusion must know which of them are the same."""
    values = [value for value in model.graph.value_info if value.name not in weights]
    for value in values:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                named = re.sub(r"\w+", lambda symbol: names.get(symbol[0], symbol[0]), dim.dim_param)
                dim.dim_param = _sum_of(named.split("+")) if re.fullmatch(r"[\w+ ]+", named) else named
    return values


def _optimize(program: onnx_ir.Model, exportable: Exportable) -> None:
    """Folds and inlines what torch's translation leaves; weights are inputs here and stay as they are."""
    from onnxscript import optimizer

    def should_fold(node: onnx_ir.Node) -> bool | None:
        # onnx's reference implementation, which computes constants, takes minutes for one bicubic Resize.
        return False if node.op_type == "Resize" else None

    with _quiet():
        try:
            optimizer.optimize_ir(program, should_fold=should_fold)
            keep_module_scopes(program)
        except Exception as e:
            told = describe_failure(e, exportable.module, ())
            raise EngineError(
                f"onnxscript fails on torch.export's graph of {exportable.source.architecture}: {told}"
            ) from e
