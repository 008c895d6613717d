"""What an ONNX file says of itself and what follows from it: any exporter's file, not only ours."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import onnx

from onnxport.verify.graph_facts import GraphFacts, dtype_name, facts_of, initializers, stored_bytes
from onnxport.verify.model_file import read_model

NCHWC_DOMAIN = "com.microsoft.nchwc"
"""Operators on a memory layout that only the kind of CPU they were made on can read."""

# The first ONNX Runtime release that loads a file, tried against the releases from 1.15 to 1.32; older entries follow
# the ONNX version that a release was built with.
_FIRST_RUNTIME_BY_OPSET = {
    13: (1, 7), 14: (1, 8), 15: (1, 9), 16: (1, 11), 17: (1, 12), 18: (1, 14), 19: (1, 15), 20: (1, 17),
    21: (1, 18), 22: (1, 21), 23: (1, 23), 24: (1, 24), 25: (1, 24), 26: (1, 25), 27: (1, 32), 28: (1, 32),
}  # fmt: skip
_FIRST_RUNTIME_BY_IR = {
    7: (1, 5),
    8: (1, 9),
    9: (1, 15),
    10: (1, 18),
    11: (1, 23),
    12: (1, 24),
    13: (1, 24),
    14: (1, 32),
}
_FIRST_RUNTIME_BY_CONTRIB_OP = {
    "GatherBlockQuantized": (1, 20),
    "GemmaRotaryEmbedding": (1, 18),
    "GroupQueryAttention": (1, 16),
    "MatMulNBits": (1, 16),
    "MoE": (1, 17),
    "MultiHeadAttention": (1, 16),
    "QMoE": (1, 18),
    "QuickGelu": (1, 16),
    "RotaryEmbedding": (1, 16),
    "SkipSimplifiedLayerNormalization": (1, 16),
    "SparseAttention": (1, 18),
}


@dataclass(frozen=True)
class Weights:
    """The initializers of a graph and its subgraphs. `bytes_by_dtype`: numpy's dtype name to bytes of values."""

    count: int
    elements: int
    bytes_by_dtype: Mapping[str, int]


@dataclass(frozen=True)
class FileFacts(GraphFacts):
    """The facts of one ONNX file: those of its graph, and those of the file as something to ship.

    Attributes:
        external_data: the weights files that the graph names, as it names them; `missing_data` those that are not in
            the folder of the graph, or outside it.
        size_bytes: the file and the external data that is there.
    """

    path: Path
    producer: str
    weights: Weights
    external_data: tuple[str, ...]
    missing_data: tuple[str, ...]
    size_bytes: int

    @property
    def portable(self) -> bool:
        """Whether there are no operators of the NCHWc layout, which are tied to the machine that wrote them."""
        return not any(op.startswith(f"{NCHWC_DOMAIN}:") for op in self.ops)

    @property
    def min_onnxruntime(self) -> str:
        """The first release that loads this IR version, ONNX opset and these contrib operators.

        "unknown" when one of them is newer than what this onnxport knows.
        """
        needs = [
            _since(_FIRST_RUNTIME_BY_IR, self.ir_version),
            _since(_FIRST_RUNTIME_BY_OPSET, self.opsets.get("", 0)),
            *(_FIRST_RUNTIME_BY_CONTRIB_OP.get(op.removeprefix("com.microsoft:"), (1, 0)) for op in self.ops),
        ]
        known = [release for release in needs if release is not None]
        return ".".join(map(str, max(known))) if len(known) == len(needs) else "unknown"


def read_facts(path: Path) -> FileFacts:
    """Reads the facts of an ONNX file; its external data is neither needed nor loaded.

    Raises:
        ModelFileError: the file is missing, or is not an ONNX model (another format, truncated, empty).
    """
    model = read_model(path).proto
    graph = facts_of(model, path)
    external = sorted({tensor.location for tensor in graph.external})
    present = [name for name in external if _is_beside(path, name)]
    return FileFacts(
        **vars(graph),
        path=path,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        weights=_weigh(initializers(model)),
        external_data=tuple(external),
        missing_data=tuple(name for name in external if name not in present),
        size_bytes=sum(file.stat().st_size for file in (path, *(path.parent / name for name in present))),
    )


def _is_beside(path: Path, name: str) -> bool:
    """Whether the data is where ONNX Runtime would accept it: inside the folder of the graph."""
    pure = PurePosixPath(name)
    return not pure.is_absolute() and ".." not in pure.parts and (path.parent / name).is_file()


def _weigh(weights: Iterable[onnx.TensorProto]) -> Weights:
    count = elements = 0
    sizes: Counter[str] = Counter()
    for tensor in weights:
        count += 1
        elements += math.prod(tensor.dims)
        sizes[dtype_name(tensor.data_type)] += stored_bytes(tensor)
    return Weights(count, elements, dict(sorted(sizes.items())))


def _since(table: Mapping[int, tuple[int, int]], version: int) -> tuple[int, int] | None:
    if version < min(table):
        return (1, 0)
    return table.get(version)
