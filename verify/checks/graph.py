"""graph.*: is the file valid ONNX, and does it say what was promised?"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import onnx

from onnxport.verify.contract import TensorSpec
from onnxport.verify.graph_facts import ExternalTensor, GraphFacts, stored_bytes
from onnxport.verify.inspection import Inspection, without_folder
from onnxport.verify.model_file import ModelFile
from onnxport.verify.report import CheckResult
from onnxport.verify.runners import one_line

# Operators that ONNX Runtime's passes write into the ONNX domain although ONNX has them later (from the version given)
# or never. Every ONNX Runtime runs them; onnx.checker knows them not.
_RUNTIME_OPS = {"ai.onnx:LayerNormalization": 17, "ai.onnx:SimplifiedLayerNormalization": None}

_OLDEST_IR_VERSION = 3  # ONNX 1.0; ONNX Runtime reads nothing older


def check_checker(inspection: Inspection) -> list[CheckResult]:
    """onnx.checker accepts the file, and its external data is there in full. Weights are not loaded."""
    subject = inspection.subject
    if not subject.is_onnx:
        return [inspection.result("graph.checker", "skip", f"{subject.path.name} holds no ONNX protos")]
    if inspection.facts_error is not None:
        return [inspection.result("graph.checker", "fail", inspection.facts_error)]
    problems = _external_problems(subject.path.parent, inspection.facts.external)
    problems += _inline_problems(inspection.model)
    unknown = _runtime_ops(inspection.facts)
    if not problems:
        try:
            onnx.checker.check_model(_checkable(inspection.model, unknown))
        except (onnx.checker.ValidationError, ValueError) as e:
            problems.append(without_folder(one_line(e), subject.path))
    if problems:
        return [inspection.result("graph.checker", "fail", "; ".join(problems))]
    beside = f"; {', '.join(sorted(unknown))} taken as ONNX Runtime's own" if unknown else ""
    external = len(inspection.facts.external)
    return [inspection.result("graph.checker", "pass", f"valid ONNX, {external} external tensors in place{beside}")]


def check_opset(inspection: Inspection) -> list[CheckResult]:
    """The file imports exactly the opsets of the contract, with its IR version, or one that can be read.

    Each IR version needs an ONNX Runtime of its time: a file that moved on no longer loads where it was promised to.
    """
    expected = {("" if domain == "ai.onnx" else domain): v for domain, v in inspection.subject.contract.opsets.items()}
    if not expected:
        return [inspection.result("graph.opset", "skip", "the contract names no opsets")]
    facts = inspection.facts
    problems = []
    if dict(facts.opsets) != expected:
        problems.append(f"the file imports {_opsets(facts.opsets)}, expected {_opsets(expected)}")
    if not _OLDEST_IR_VERSION <= facts.ir_version <= onnx.IR_VERSION:
        problems.append(f"IR version {facts.ir_version}, expected {_OLDEST_IR_VERSION} to {onnx.IR_VERSION}")
    elif inspection.subject.contract.ir_version not in (None, facts.ir_version):
        problems.append(f"IR version {facts.ir_version}, expected {inspection.subject.contract.ir_version}")
    if problems:
        return [inspection.result("graph.opset", "fail", "; ".join(problems))]
    return [inspection.result("graph.opset", "pass", f"{_opsets(facts.opsets)}, IR version {facts.ir_version}")]


def check_names(inspection: Inspection) -> list[CheckResult]:
    """Inputs and outputs have the names, the order and the dtypes of the contract."""
    contract = inspection.subject.contract
    inputs, outputs = inspection.interface
    problems = list(_name_problems("inputs", inputs, contract.inputs))
    problems += _name_problems("outputs", outputs, contract.outputs)
    if problems:
        return [inspection.result("graph.names", "fail", "; ".join(problems))]
    return [inspection.result("graph.names", "pass", f"{len(inputs)} inputs and {len(outputs)} outputs as promised")]


def check_axes(inspection: Inspection) -> list[CheckResult]:
    """Every dimension is the axis, or has the fixed size, that the contract promises."""
    contract = inspection.subject.contract.written()
    inputs, outputs = inspection.interface
    found = {spec.name: spec.shape for spec in (*inputs, *outputs)}
    problems = []
    dimensions = 0
    for spec in (*contract.inputs, *contract.outputs):
        dimensions += len(spec.shape)
        if spec.name not in found:
            problems.append(f"{spec.name} is missing")
        elif found[spec.name] != spec.shape:
            problems.append(f"{spec.name} is {list(found[spec.name])}, expected {list(spec.shape)}")
    if problems:
        return [inspection.result("graph.axes", "fail", "; ".join(problems))]
    return [inspection.result("graph.axes", "pass", f"{dimensions} dimensions as promised")]


def _name_problems(what: str, found: Sequence[TensorSpec], expected: Sequence[TensorSpec]) -> Iterator[str]:
    names, wanted = [spec.name for spec in found], [spec.name for spec in expected]
    if names != wanted:
        yield f"{what} are {', '.join(names) or 'none'}; expected {', '.join(wanted) or 'none'}, in this order"
    dtypes = {spec.name: spec.dtype for spec in expected}
    for spec in found:
        if spec.dtype != dtypes.get(spec.name, spec.dtype):
            yield f"{spec.name} is {spec.dtype}, expected {dtypes[spec.name]}"


def _external_problems(folder: Path, tensors: Sequence[ExternalTensor]) -> list[str]:
    """Missing and unsafe files are named once, tensors that do not fit one by one (the first of each file)."""
    problems: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for tensor in tensors:
        location = tensor.location
        if location in problems:
            continue
        if location not in sizes:
            size = _data_size(folder, location)
            if isinstance(size, str):
                problems[location] = size
                continue
            sizes[location] = size
        end = tensor.offset_bytes + tensor.size_bytes
        if tensor.offset_bytes < 0 or end > sizes[location]:
            problems[location] = (
                f"{tensor.name} lies at bytes {tensor.offset_bytes} to {end} of {location}, which has {sizes[location]}"
            )
        elif tensor.size_bytes < tensor.needed_bytes:
            problems[location] = (
                f"{tensor.name} has {tensor.size_bytes} bytes in {location}; its shape needs {tensor.needed_bytes}"
            )
    return list(problems.values())


def _data_size(folder: Path, location: str) -> int | str:
    """Returns the size of a data file in bytes, or what is wrong with it."""
    pure = PurePosixPath(location)
    if not location or pure.is_absolute() or ".." in pure.parts:
        return f"external data {location!r} leads out of the folder of the graph"
    try:
        status = (folder / location).lstat()
    except OSError as e:
        return f"external data {location} cannot be read: {e.strerror or e}"
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        return f"external data {location} is a link or no regular file, which onnx refuses to load"
    return status.st_size


def _runtime_ops(facts: GraphFacts) -> set[str]:
    opset = facts.opsets.get("", 0)
    return {op for op, since in _RUNTIME_OPS.items() if op in facts.ops and (since is None or opset < since)}


def _inline_problems(file: ModelFile) -> list[str]:
    needed = {tensor.name: stored_bytes(tensor) for tensor in file.proto.graph.initializer}
    return [
        f"{name} has {data.size_bytes} bytes of data; its shape needs {needed[name]}"
        for name, data in file.skipped.items()
        if data.size_bytes != needed[name]
    ][:3]


def _checkable(file: ModelFile, ops: set[str]) -> onnx.ModelProto:
    """Returns the model without weights, and with these operators in a domain that onnx.checker leaves alone.

    Given a proto, the checker would look for external data in the working folder, and it takes a tensor without data
    for a mistake; whether all data is there was checked before.
    """
    model = onnx.ModelProto()
    model.CopyFrom(file.proto)
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        for tensor in graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL or (
                graph is model.graph and tensor.name in file.skipped
            ):
                tensor.CopyFrom(onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0]))
        for node in graph.node:
            if f"{node.domain or 'ai.onnx'}:{node.op_type}" in ops:
                node.domain = "com.microsoft"
            for attribute in node.attribute:
                pending += [attribute.g, *attribute.graphs]
    if ops and all(opset.domain != "com.microsoft" for opset in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return model


def _opsets(opsets: Mapping[str, int]) -> str:
    return ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in sorted(opsets.items()))
