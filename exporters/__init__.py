"""Source to graphs to bundle. Importing this package is cheap; torch and transformers load when an export starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxport.exporters.bundle import Bundle as Bundle
    from onnxport.exporters.bundle import load_bundle as load_bundle
    from onnxport.exporters.pipeline import export as export
    from onnxport.exporters.recipe import Recipe as Recipe
    from onnxport.exporters.recipe_file import load_recipe as load_recipe

_PUBLIC = {
    "Bundle": "onnxport.exporters.bundle",
    "Recipe": "onnxport.exporters.recipe",
    "export": "onnxport.exporters.pipeline",
    "load_bundle": "onnxport.exporters.bundle",
    "load_recipe": "onnxport.exporters.recipe_file",
}
__all__ = ["Bundle", "Recipe", "export", "load_bundle", "load_recipe"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)
