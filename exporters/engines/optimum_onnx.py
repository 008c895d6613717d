"""Optimum's exporter: its description of a model's inputs and its patches, brought under our names and axes.

It lives on transformers 4.57 alone (the extra `legacy`). The graph comes from a temporary file; weights that have a
parameter's name there stream from the module all the same.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data
from torch import Tensor, nn

from onnxport.exporters.engines.agreement import require_agreement, require_inputs_that_matter, sign
from onnxport.exporters.engines.kept_attributes import kept_attributes
from onnxport.exporters.engines.weights import attach_weights, reads, tensors_of
from onnxport.exporters.errors import EngineError
from onnxport.exporters.exportable import Exportable, name_outputs, to_tensors
from onnxport.exporters.extras import install
from onnxport.exporters.first_line import first_line
from onnxport.exporters.graph import TracedModel
from onnxport.verify.contract import GraphContract

_OTHERS = "choose another engine (--engine torchscript)"
_FLOATS = {torch.float32: "fp32", torch.float16: "fp16"}


@dataclass(frozen=True)
class _Part:
    """What Optimum exports into one file: the model or a part of it, and its OnnxConfig.

    `inputs` are those the graph can have, `outputs` those it has, in their order.
    """

    model: Any
    config: Any
    inputs: frozenset[str]
    outputs: tuple[str, ...]


def export_graph(exportable: Exportable, contract: GraphContract) -> TracedModel:
    """See `ExportFunction`."""
    contract = contract.written()
    inputs = to_tensors(exportable.sample(exportable.example, np.random.default_rng(0)))
    model = _transformers_model(exportable)
    with TemporaryDirectory() as folder, kept_attributes(exportable.module), _kept_configs(model):
        part = _find_part(exportable, model, contract, inputs)
        graph = _export(exportable, part, contract, Path(folder) / "model.onnx")
    tensors = tensors_of(part.model)
    _keep_the_contract(graph, contract, exportable)
    require_inputs_that_matter(graph, exportable, inputs)
    _leave_parameters_to_the_module(graph, tensors)
    weights = attach_weights(graph, tensors, list(inputs))
    require_agreement(graph, contract)
    sign(graph, contract)
    return TracedModel(graph, weights)


def _transformers_model(exportable: Exportable) -> Any:
    from transformers import PreTrainedModel

    for module in (exportable.module, getattr(exportable.module, "model", None)):
        if isinstance(module, PreTrainedModel):
            return module
    raise EngineError(
        f"Optimum exports models of transformers as they are; {exportable.source.architecture} is "
        f"{type(exportable.module).__name__}, which adds to one or is none; {_OTHERS}"
    )


@contextmanager
def _kept_configs(model: nn.Module) -> Iterator[None]:
    """Gives the configs back the settings that Optimum changes; its own forward goes with `kept_attributes`."""
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    settings = [(config, dict(vars(config))) for config in configs.values()]
    try:
        yield
    finally:
        for config, before in settings:
            vars(config).clear()
            vars(config).update(before)


def _find_part(exportable: Exportable, model: Any, contract: GraphContract, inputs: Mapping[str, Tensor]) -> _Part:
    """Returns the part of Optimum's division of the model that has the inputs and outputs of the contract.

    Raises:
        EngineError: Optimum does not know the model type or the task, or no part fits.
    """
    wanted = {spec.name for spec in contract.outputs}
    parts = _parts(exportable, model, inputs)
    for part in parts:
        if inputs.keys() <= part.inputs and wanted <= set(part.outputs):
            return part
    known = "; or ".join(f"{', '.join(sorted(part.inputs))} and returns {', '.join(part.outputs)}" for part in parts)
    raise EngineError(
        f"Optimum's graph of {exportable.source.architecture} takes {known}; expected inputs {', '.join(inputs)} and "
        f"outputs {', '.join(spec.name for spec in contract.outputs)}; {_OTHERS}"
    )


def _parts(exportable: Exportable, model: Any, inputs: Mapping[str, Tensor]) -> list[_Part]:
    try:
        import optimum.exporters.onnx.model_configs  # noqa: F401  # tells TasksManager what there is
        from optimum.exporters.tasks import TasksManager
        from optimum.exporters.utils import get_decoder_models_for_export, get_encoder_decoder_models_for_export
    except ImportError as e:
        raise EngineError(
            f"optimum-onnx does not load here ({e}): it needs transformers below 4.58; run "
            f"{install('export', 'legacy')} in an environment of its own"
        ) from e

    task = exportable.source.task
    whole = exportable.module is model
    try:
        constructor = TasksManager.get_exporter_config_constructor(
            "onnx", model, task=task if whole else f"{task}-with-past", library_name="transformers"
        )
        config = constructor(model.config, int_dtype="int64", float_dtype=_FLOATS[model.dtype])
    except (KeyError, ValueError) as e:
        raise EngineError(
            f"Optimum cannot export {exportable.source.architecture} for the task {task}: {first_line(e)}; {_OTHERS}"
        ) from e
    if whole:
        # Optimum keeps one or two outputs of a task; any that the model returns can be asked for by name.
        with torch.inference_mode():
            returned = name_outputs(model(**inputs, **_options(exportable)))
        return [_Part(model, config, frozenset(config.inputs), tuple(returned))]
    divide = get_encoder_decoder_models_for_export if model.config.is_encoder_decoder else get_decoder_models_for_export
    return [
        _Part(part, one, frozenset(one.ordered_inputs(part)), tuple(one.outputs))
        for part, one in divide(model, config).values()
    ]


def _options(exportable: Exportable) -> dict[str, Any]:
    return {**exportable.options, **{f"output_{name}": True for name in exportable.extra_outputs}}


def _export(exportable: Exportable, part: _Part, contract: GraphContract, file: Path) -> onnx.ModelProto:
    """Writes the graph into the file with Optimum and returns it, small enough for memory: see `_read`.

    Raises:
        EngineError: Optimum or the tracer failed.
    """
    from optimum.exporters.onnx.convert import export

    dims = {
        spec.name: {i: dim for i, dim in enumerate(spec.shape) if isinstance(dim, str)}
        for spec in (*contract.inputs, *contract.outputs)
    }
    whole = exportable.module is part.model
    config = _narrowed(
        part.config,
        None if part.config.torch_to_onnx_input_map else set(dims),
        {name: dims[name] for name in part.outputs if name in dims} if whole else None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            export(
                part.model,
                config,
                file,
                opset=contract.opsets[""],
                disable_dynamic_axes_fix=True,
                # Folding would write transposed copies of the weights under names that say nothing.
                do_constant_folding=False,
                model_kwargs=_options(exportable),
            )
        except Exception as e:
            raise EngineError(
                f"Optimum cannot export {exportable.source.architecture}: {type(e).__name__}: {first_line(e)}; "
                f"{_OTHERS}"
            ) from e
    return _read(file, tensors_of(part.model))


def _narrowed(config: Any, inputs: set[str] | None, outputs: Mapping[str, Mapping[int, str]] | None) -> Any:
    """Returns a copy of an OnnxConfig that knows these inputs only, and returns these outputs. None: its own."""
    known: Any = type(config)

    class Narrowed(known):  # type: ignore[misc]  # Optimum has no types
        @property
        def inputs(self) -> dict[str, dict[int, str]]:
            own: dict[str, dict[int, str]] = super().inputs
            return own if inputs is None else {name: axes for name, axes in own.items() if name in inputs}

        @property
        def outputs(self) -> dict[str, dict[int, str]]:
            own: dict[str, dict[int, str]] = super().outputs
            return own if outputs is None else {name: dict(axes) for name, axes in outputs.items()}

    narrowed = copy.copy(config)
    narrowed.__class__ = Narrowed
    return narrowed


def _read(file: Path, tensors: Mapping[str, Tensor]) -> onnx.ModelProto:
    """Reads the graph, and of the weights beside it those that the module does not have."""
    model = onnx.load(file, load_external_data=False)
    for tensor in model.graph.initializer:
        if uses_external_data(tensor) and not _is_of(tensors, tensor):
            load_external_data_for_tensor(tensor, str(file.parent))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    return model


def _keep_the_contract(model: onnx.ModelProto, contract: GraphContract, exportable: Exportable) -> None:
    """Drops outputs that the contract has not, with what only they need, and inputs that nothing reads.

    Raises:
        EngineError: an output is missing, or the graph reads an input that the contract has not.
    """
    graph = model.graph
    wanted = [spec.name for spec in contract.outputs]
    there = {value.name: value for value in graph.output}
    missing = [name for name in wanted if name not in there]
    if missing:
        raise EngineError(
            f"Optimum's graph of {exportable.source.architecture} returns {', '.join(there)}; expected an output "
            f"{missing[0]!r}; {_OTHERS}"
        )
    del graph.output[:]
    graph.output.extend(there[name] for name in wanted)
    needed = set(wanted)
    for node in reversed(graph.node):  # sorted: what a node reads is made before it
        if needed.intersection(node.output):
            needed.update(reads(onnx.GraphProto(node=[node])))
    nodes = [node for node in graph.node if needed.intersection(node.output)]
    del graph.node[:]
    graph.node.extend(nodes)
    initializers = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.initializer[:]
    graph.initializer.extend(initializers)
    names = {spec.name for spec in contract.inputs}
    strange = [value.name for value in graph.input if value.name in needed - names]
    if strange:
        raise EngineError(
            f"Optimum's graph of {exportable.source.architecture} reads an input {strange[0]!r}; expected "
            f"{', '.join(names)} only; {_OTHERS}"
        )
    inputs = [value for value in graph.input if value.name in names]
    del graph.input[:]
    graph.input.extend(inputs)


def _leave_parameters_to_the_module(model: onnx.ModelProto, tensors: Mapping[str, Tensor]) -> None:
    """Makes an input of each initializer that is a parameter or buffer of the module, as `attach_weights` wants it."""
    graph = model.graph
    own = [tensor for tensor in graph.initializer if _is_of(tensors, tensor)]
    graph.input.extend(helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in own)
    names = {tensor.name for tensor in own}
    others = [tensor for tensor in graph.initializer if tensor.name not in names]
    del graph.initializer[:]
    graph.initializer.extend(others)


def _is_of(tensors: Mapping[str, Tensor], initializer: onnx.TensorProto) -> bool:
    """Whether an initializer is a parameter or buffer of the module: torch.onnx keeps its name."""
    return initializer.name in tensors and tuple(initializer.dims) == tuple(tensors[initializer.name].shape)
