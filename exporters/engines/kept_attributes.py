"""A trace must leave the module as it was: it is the reference, and the next engine traces it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def kept_attributes(module: nn.Module) -> Iterator[None]:
    """Gives the module and its parts back the attributes, parameters and buffers that they had.

    Swin clamps its windows in forward and keeps the result: under a trace that is a traced or fake tensor, which every
    later run would read. Exporters also leave the mode and a patched forward behind.
    """
    before = [(vars(part), dict(vars(part)), _contents(part._parameters, part._buffers)) for part in module.modules()]
    try:
        yield
    finally:
        for attributes, kept, registered in before:
            for name in attributes.keys() - kept.keys():
                del attributes[name]
            attributes.update(kept)
            for own, tensors in registered:
                own.clear()
                own.update(tensors)


def _contents(*registries: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each with a copy; those of scripted modules are views that cannot be written."""
    return [(own, dict(own)) for own in registries if isinstance(own, dict)]
