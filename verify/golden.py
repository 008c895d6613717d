"""Golden tensors: some cases and the reference's outputs for them. With them, a bundle is verified without PyTorch.

One safetensors file. Tensors are called `<case number>/input/<name>` and `<case number>/output/<name>`; order, case
names and masks are in the metadata, with a digest over all of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.verify.cases import Case
from onnxport.verify.errors import VerificationError
from onnxport.verify.runners import Recorded

BUDGET_BYTES = 4 * 2**20
_KEY = "golden"
_SCHEMA_VERSION = 1
_ADVICE = "Export again, or verify against the source."

Outputs = Mapping[str, Mapping[str, np.ndarray]]
"""Case name to output name to array."""


def select_golden(cases: Sequence[Case], outputs: Outputs, budget_bytes: int = BUDGET_BYTES) -> list[Case]:
    """Returns the cases to store: as many kinds as fit into the budget, then as many cases, the smallest of each first.

    Two cases are of one kind if both or neither have padding and their names start with the same word ("text",
    "padding"). The smallest case is always stored, whatever its size. The order of `cases` is kept.

    Raises:
        VerificationError: there are no cases, or outputs of one are missing.
    """
    if not cases:
        raise VerificationError("There is no case to store as golden tensors. Give at least one.")
    kinds: dict[tuple[bool, str], list[Case]] = {}
    for case in sorted(cases, key=lambda case: _size_bytes(case, outputs)):
        kinds.setdefault(_kind(case), []).append(case)
    chosen: set[str] = set()
    left = budget_bytes
    for turn in range(max(map(len, kinds.values()))):
        for kind in kinds.values():
            if turn < len(kind) and (_size_bytes(kind[turn], outputs) <= left or not chosen):
                chosen.add(kind[turn].name)
                left -= _size_bytes(kind[turn], outputs)
    return [case for case in cases if case.name in chosen]


def save_golden(path: str | Path, cases: Sequence[Case], outputs: Outputs) -> None:
    """Writes the cases and their outputs. Equal content gives equal bytes.

    Raises:
        VerificationError: there are no cases, outputs of one are missing, or safetensors lacks a tensor's dtype.
        OSError: the file cannot be written.
    """
    from safetensors.numpy import save

    if not cases:
        raise VerificationError("There is no case to store as golden tensors. Give at least one.")
    tensors: dict[str, np.ndarray] = {}
    described = []
    for number, case in enumerate(cases):
        results = _outputs_of(case, outputs)
        tensors |= {f"{number}/input/{name}": array for name, array in case.inputs.items()}
        tensors |= {f"{number}/output/{name}": array for name, array in results.items()}
        described.append({"name": case.name, "mask": case.mask, "inputs": list(case.inputs), "outputs": list(results)})
    tensors = {name: np.array(array, order="C") for name, array in tensors.items()}
    # One key only: safetensors writes several in an order that changes from run to run.
    metadata = {"schema_version": _SCHEMA_VERSION, "cases": described, "digest": _digest(described, tensors)}
    try:
        data = save(tensors, {_KEY: json.dumps(metadata, ensure_ascii=False)})
    except Exception as e:  # safetensors raises KeyError, TypeError or its own error by dtype
        dtypes = sorted({str(array.dtype) for array in tensors.values()})
        raise VerificationError(f"safetensors cannot store all of {', '.join(dtypes)} ({e}). Drop that output.") from e
    Path(path).write_bytes(data)


def load_golden(path: str | Path) -> tuple[list[Case], Recorded]:
    """Reads golden tensors: the cases in the order they were stored in, and a runner that replays their outputs.

    Raises:
        VerificationError: the file is missing, truncated or corrupt, or holds something else.
    """
    path = Path(path)
    metadata, tensors = _read(path)
    try:
        described = metadata["cases"]
        if metadata["schema_version"] != _SCHEMA_VERSION:
            raise VerificationError(
                f"{path} has golden schema version {metadata['schema_version']}, expected {_SCHEMA_VERSION}. {_ADVICE}"
            )
        if metadata["digest"] != _digest(described, tensors):
            raise VerificationError(f"{path} is corrupt: its content does not have the stored digest. {_ADVICE}")
        cases = []
        outputs: dict[str, dict[str, np.ndarray]] = {}
        for number, entry in enumerate(described):
            inputs = {name: tensors[f"{number}/input/{name}"] for name in entry["inputs"]}
            cases.append(Case(entry["name"], inputs, entry["mask"]))
            outputs[entry["name"]] = {name: tensors[f"{number}/output/{name}"] for name in entry["outputs"]}
    except (KeyError, TypeError) as e:
        raise VerificationError(f"{path} holds no golden tensors as onnxport writes them ({e!r}). {_ADVICE}") from e
    return cases, Recorded("golden", outputs)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = json.loads((file.metadata() or {})[_KEY])
            return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
    except KeyError as e:
        raise VerificationError(f"{path} holds no golden tensors (no {e} in its metadata). {_ADVICE}") from e
    except OSError as e:
        raise VerificationError(f"The golden tensors {path} cannot be read: {e.strerror or e}. {_ADVICE}") from e
    except (SafetensorError, ValueError) as e:
        raise VerificationError(f"{path} is truncated or corrupt: {e}. {_ADVICE}") from e


def _digest(described: Iterable[Mapping[str, Any]], tensors: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(list(described), ensure_ascii=False).encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _kind(case: Case) -> tuple[bool, str]:
    padded = case.mask is not None and not bool(np.all(case.inputs[case.mask]))
    word = re.match(r"[^\W\d_]+", case.name)
    return padded, word.group() if word else ""


def _size_bytes(case: Case, outputs: Outputs) -> int:
    arrays = [*case.inputs.values(), *_outputs_of(case, outputs).values()]
    return sum(array.nbytes for array in arrays)


def _outputs_of(case: Case, outputs: Outputs) -> Mapping[str, np.ndarray]:
    if not outputs.get(case.name):
        raise VerificationError(
            f"There are no outputs for case {case.name}; there are some for {', '.join(sorted(outputs)) or 'none'}. "
            "Run the reference on every case first."
        )
    return outputs[case.name]
