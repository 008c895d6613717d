"""Reads a written graph back and compares it with what was asked."""

from __future__ import annotations

from pathlib import Path

from onnxport.exporters.errors import ReadBackError
from onnxport.exporters.onnx_facts import read_facts
from onnxport.verify.contract import GraphContract, TensorSpec


def check_written(path: Path, contract: GraphContract) -> None:
    """Compares opset, names, dtypes, axes and fixed sizes of the file with the contract.

    Raises:
        ReadBackError: they differ; the message lists every difference.
        ModelFileError: the file is not an ONNX model.
    """
    contract = contract.written()
    facts = read_facts(path)
    differences = [
        f"opset of {domain or 'ai.onnx'} is {facts.opsets.get(domain)}, asked {version}"
        for domain, version in contract.opsets.items()
        if facts.opsets.get(domain) != version
    ]
    for kind, written, asked in (
        ("inputs", facts.inputs, contract.inputs),
        ("outputs", facts.outputs, contract.outputs),
    ):
        if written != asked:
            differences.append(f"{kind} are {_show(written)}, asked {_show(asked)}")
    if differences:
        raise ReadBackError(
            f"the exported graph is not what was asked: {'; '.join(differences)}; try another opset (--opset) "
            "or engine (--engine)"
        )


def _show(specs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(f"{spec.name} {spec.dtype}[{', '.join(map(str, spec.shape))}]" for spec in specs) or "none"
