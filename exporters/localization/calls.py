"""Which nodes of a graph are of which call of a module, by what the engine left on them.

TorchScript names nodes after the modules in whose call they were traced:
`/model/bert/encoder/layer.0/attention/self/query/MatMul`. torch.export writes the full names of the modules into the
metadata of a node. Calls of which the nodes cannot be told for certain are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import onnx

from onnxport.exporters.engines.module_scopes import module_scopes
from onnxport.exporters.localization.layers import LayerOutput

_ROOT = "model"
"""What the engine's wrapper calls the module."""

_Place = TypeVar("_Place")

Calls = dict[LayerOutput, set[int]]
"""Calls of modules, innermost first, to the numbers of their nodes."""


def nodes_of_calls(nodes: Sequence[onnx.NodeProto], layers: Sequence[LayerOutput]) -> Calls:
    """Returns the nodes of every call that has some.

    Args:
        nodes: of the graph as exported, in order.
        layers: what `record_layers` returned.
    """
    if any(module_scopes(node) for node in nodes):
        return _by_metadata(nodes, layers)
    return _by_name(nodes, layers)


def _by_metadata(nodes: Sequence[onnx.NodeProto], layers: Sequence[LayerOutput]) -> Calls:
    """Of a module that is called again, each call repeats the operations of the first, or they cannot be told apart."""
    inside: dict[tuple[str, ...], dict[str, set[int]]] = {}
    for number, node in enumerate(nodes):
        *modules, operation = module_scopes(node) or ("",)
        for end in range(1, len(modules) + 1):
            inside.setdefault(tuple(modules[:end]), {}).setdefault(operation, set()).add(number)
    calls = _same_place(layers, _modules)
    found: Calls = {}
    for layer in layers:
        place = _modules(layer.path)
        same, operations = calls[place], inside.get(place, {})
        size, rest = divmod(len(operations), len(same))
        kinds = [re.sub(r"_\d+$", "", operation) for operation in operations]
        if size and not rest and kinds == kinds[:size] * len(same):
            start = same.index(layer) * size
            found[layer] = set().union(*list(operations.values())[start : start + size])
    return found


def _by_name(nodes: Sequence[onnx.NodeProto], layers: Sequence[LayerOutput]) -> Calls:
    """A module's later calls have a number behind its name, but modules inside it count for themselves.

    Of a module that has some and is called again, the scope holds only a part.
    """
    inside: dict[str, set[int]] = {}
    for number, node in enumerate(nodes):
        for scope in _scopes(node):
            inside.setdefault(scope, set()).add(number)
    calls = _same_place(layers, _scope)
    found: Calls = {}
    for layer in layers:
        scope = _scope(layer.path)
        same = calls[scope]
        if len(same) == 1:
            names = [scope]
        else:
            names = [scope, *(f"{scope}_{number}" for number in range(1, len(same)))]
            composite = any(other.startswith(f"{name}/") for name in names for other in inside)
            if composite or any(name in calls for name in names[1:]) or f"{scope}_{len(same)}" in inside:
                continue
        if all(name in inside for name in names):
            found[layer] = inside[names[same.index(layer)]]
    return found


def _same_place(
    layers: Sequence[LayerOutput], place: Callable[[Sequence[str]], _Place]
) -> dict[_Place, list[LayerOutput]]:
    """Groups the calls that an engine has one place for; `place` is of the path of a call."""
    calls: dict[_Place, list[LayerOutput]] = {}
    for layer in layers:
        calls.setdefault(place(layer.path), []).append(layer)
    return calls


def _scopes(node: onnx.NodeProto) -> list[str]:
    """`/model/a`, `/model/a/b` for a node `/model/a/b/MatMul`."""
    if not node.name.startswith("/"):
        return []
    parts = node.name.split("/")[:-1]
    return ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]


def _modules(path: Sequence[str]) -> tuple[str, ...]:
    """The names that the modules of a path have in the wrapper."""
    return tuple(f"{_ROOT}.{name}" if name else _ROOT for name in path)


def _scope(path: Sequence[str]) -> str:
    return "".join(f"/{_component(name)}" for name in _modules(path))


def _component(name: str) -> str:
    """The last part of a module's full name; with those before it, while it starts with a number (in a ModuleList)."""
    parts = name.split(".")
    start = len(parts) - 1
    while start and parts[start].isdecimal():
        start -= 1
    return ".".join(parts[start:])
