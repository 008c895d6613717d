"""What a graph promises: its inputs, outputs, axes and opsets, and the files it is made of.

A shape is a tuple in which an `int` is a fixed size and a `str` is the name of a dynamic axis:
`input_ids` is `int64 ["batch", "sequence"]`. A dimension may also be the sum of axes: the attention mask of a decoder
with a cache is `int64 ["batch", "past_sequence+sequence"]`. A sum is no axis of its own: it has no range.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Dim = int | str


def addends(dim: Dim) -> tuple[Dim, ...]:
    """Returns what a dimension is the sum of: "past_sequence+sequence" has two addends, "sequence" and 7 one each."""
    if isinstance(dim, int):
        return (dim,)
    return tuple(int(part) if part.isdecimal() else part for part in dim.split("+"))


def size_of(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Returns the size of a dimension where those of the axes are known; raises KeyError for an axis that is not."""
    return sum(part if isinstance(part, int) else sizes[part] for part in addends(dim))


def with_fixed(dim: Dim, fixed: Mapping[str, int]) -> Dim:
    """Returns the dimension with the fixed axes as numbers: with sequence 1, "past_sequence+1"."""
    parts = [fixed.get(part, part) if isinstance(part, str) else part for part in addends(dim)]
    number, names = sum(part for part in parts if isinstance(part, int)), [p for p in parts if isinstance(p, str)]
    return number if not names else "+".join([*names, *([str(number)] if number else [])])


MANIFEST_NAME = "bundle.json"
"""The file that describes a bundle, the only one in it that is in no list of its files."""


class Model(BaseModel):
    """Base of what is read from disk: unknown keys are refused, instances do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorSpec(Model):
    """One input or output of a graph.

    `dtype` is numpy's name ("int64", "float32", "bool"); `shape` mixes fixed sizes and axis names.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]


class AxisRange(Model):
    """The sizes an axis may take: `min` to `max` inclusive (`max` None: no known bound).

    `proven` sizes were run and compared.
    """

    min: int = 1
    max: int | None = None
    proven: tuple[int, ...] = ()

    @property
    def fixed(self) -> int | None:
        """The only size the axis may take, where there is only one: the graph then has that number in its place."""
        return self.max if self.max == self.min else None


class Vocabulary(Model):
    """The ids an input may hold: 0 to `size` - 1. `padding` is the id that stands at padded positions."""

    size: int = Field(ge=1)
    padding: int = 0


class GraphContract(Model):
    """What a file is expected to say of itself. `opsets`: domain ("" is the ONNX domain) to version; `ir_version`: None
    where any that can be read will do.

    `vocabularies`: of the inputs that are looked up in a table, what they may hold.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    axes: dict[str, AxisRange] = Field(default_factory=dict)
    opsets: dict[str, int] = Field(default_factory=dict)
    ir_version: int | None = None
    vocabularies: dict[str, Vocabulary] = Field(default_factory=dict)

    def written(self) -> GraphContract:
        """Returns the contract as a file states it: a fixed axis is its size, and only dynamic axes have names.

        The contract itself keeps the names, which tell that position 3 of an output is token 3 of the mask.
        """
        fixed = {name: axis.fixed for name, axis in self.axes.items() if axis.fixed is not None}

        def resolve(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
            shapes = [tuple(with_fixed(dim, fixed) for dim in s.shape) for s in specs]
            return tuple(s.model_copy(update={"shape": shape}) for s, shape in zip(specs, shapes, strict=True))

        return GraphContract(
            inputs=resolve(self.inputs),
            outputs=resolve(self.outputs),
            axes={name: axis for name, axis in self.axes.items() if name not in fixed},
            opsets=self.opsets,
            ir_version=self.ir_version,
            vocabularies=self.vocabularies,
        )


def inside(path: str) -> str:
    pure = PurePosixPath(path)
    leads_out = pure.is_absolute() or ".." in pure.parts or "\\" in path or ":" in path
    if leads_out or str(pure) != path or not pure.parts or not path.isprintable():
        raise ValueError(f"{path!r} is no plain path inside the bundle: relative, without .. or drive, split by /")
    return path


BundlePath = Annotated[str, AfterValidator(inside)]
"""A relative POSIX path that stays inside the bundle."""


class FileRecord(Model):
    """One file of a bundle. `sha256` is lower-case hex of the whole file."""

    path: BundlePath
    size_bytes: int
    sha256: str
