"""What a literal table names, imported when it is used: "package.module:name"."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter
from typing import Any


def import_target(target: str) -> Any:
    """Imports the module and returns what it calls by that name, which may have dots: "package.module:Class.method".

    Raises:
        ImportError: there is no such module, or one that it needs.
        AttributeError: the module has nothing of that name.
        ValueError: the target has no colon.
    """
    module, name = target.split(":")
    return attrgetter(name)(import_module(module))
