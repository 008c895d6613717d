"""TorchScript tracing without weights: the graph comes from the trace, the weights straight from the module.

`torch.onnx.export(export_params=False)` leaves each parameter as a named input, which `weights` then replaces.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping

import numpy as np
import onnx
import torch
from torch import Tensor

from onnxport.exporters.engines.agreement import require_agreement, require_inputs_that_matter, sign
from onnxport.exporters.engines.by_keyword import ByKeyword
from onnxport.exporters.engines.control_flow import TracedReads, find_data_dependence
from onnxport.exporters.engines.kept_attributes import kept_attributes
from onnxport.exporters.engines.mask_functions import traceable_masks
from onnxport.exporters.engines.tensor_forms import tensor_forms
from onnxport.exporters.engines.torchscript_operators import more_operators
from onnxport.exporters.engines.weights import attach_weights, tensors_of
from onnxport.exporters.errors import EngineError
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.exporters.first_line import first_line
from onnxport.exporters.graph import TracedModel
from onnxport.verify.contract import GraphContract


def export_graph(exportable: Exportable, contract: GraphContract) -> TracedModel:
    """See `ExportFunction`."""
    contract = contract.written()
    names = tuple(spec.name for spec in contract.inputs)
    wrapper = ByKeyword(exportable, names)
    inputs = to_tensors(exportable.sample(exportable.example, np.random.default_rng(0)))
    model = _trace(wrapper, exportable, inputs, contract)
    require_inputs_that_matter(model, exportable, inputs)
    weights = attach_weights(model, tensors_of(wrapper), names)
    require_agreement(model, contract)
    sign(model, contract)
    return TracedModel(model, weights)


def _trace(
    wrapper: ByKeyword, exportable: Exportable, inputs: Mapping[str, Tensor], contract: GraphContract
) -> onnx.ModelProto:
    bare = io.BytesIO()
    dynamic = {
        spec.name: {i: dim for i, dim in enumerate(spec.shape) if isinstance(dim, str)}
        for spec in (*contract.inputs, *contract.outputs)
    }
    reads = TracedReads()
    with (
        warnings.catch_warnings(record=True) as seen,
        kept_attributes(wrapper),
        traceable_masks(),
        tensor_forms(wrapper),
        more_operators(contract),
        reads,
    ):
        warnings.simplefilter("always")
        try:
            torch.onnx.export(
                wrapper,
                tuple(inputs.values()),
                bare,  # type: ignore[arg-type]  # a buffer works here, only the annotation lacks it
                dynamo=False,
                opset_version=contract.opsets[""],
                export_params=False,
                do_constant_folding=False,
                input_names=[spec.name for spec in contract.inputs],
                output_names=[spec.name for spec in contract.outputs],
                dynamic_axes=dynamic,
            )
        except EngineError as e:
            raise EngineError(f"TorchScript cannot export {exportable.source.architecture}: {e}") from e
        except Exception as e:
            raise EngineError(
                f"TorchScript cannot export {exportable.source.architecture}: {type(e).__name__}: {first_line(e)}"
            ) from e
    suspects = {(w.filename, w.lineno) for w in seen if w.category.__name__ == "TracerWarning"} | reads.places
    if suspects:
        found = find_data_dependence(exportable, inputs, suspects)
        if found:
            raise EngineError(
                f"a trace of {exportable.source.architecture} would be wrong for other inputs: {found[0]}. A trace "
                "keeps the branch or number that the example took; write it with tensor operations (torch.where, "
                "masks), or move it out of forward"
            )
    model: onnx.ModelProto = onnx.ModelProto.FromString(bare.getvalue())
    return model
