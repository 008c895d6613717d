"""A trace must leave the module as it was: it is the reference, and the next engine traces it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def kept_attributes(module: nn.Module) -> Iterator[None]:
    """Gives the module and its parts back the attributes that they had.

    Swin clamps its windows in forward and keeps the result: under a trace that is a traced tensor, which every later
    run would read.
    """
    before = [(part, dict(vars(part))) for part in module.modules()]
    try:
        yield
    finally:
        for part, attributes in before:
            for name in vars(part).keys() - attributes.keys():
                delattr(part, name)
            vars(part).update(attributes)
