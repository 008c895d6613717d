"""Any source to an `Exportable`, and the files that go into the bundle with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxport.exporters.checkpoint import load_checkpoint
from onnxport.exporters.exportable import Exportable
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.plain_module import load_plain_module
from onnxport.exporters.preprocessing import copy_files
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.source import find_folder, is_factory


@dataclass(frozen=True)
class Loaded:
    """A source in memory. `folder` is None for a plain module, which has no files."""

    exportable: Exportable
    folder: Path | None = None
    tokenizer: Any = None

    def copy_files(self, target: Path) -> tuple[str, ...]:
        """Copies config, tokenizer and processor files into the bundle and returns their paths."""
        return copy_files(self.folder, self.tokenizer, target) if self.folder is not None else ()


def load(source: str, recipe: Recipe, hub: HubOptions, attention: str) -> Loaded:
    """Loads a checkpoint folder, a Hub id or a factory; raises what `load_checkpoint` and `load_plain_module` raise."""
    if is_factory(source):
        return Loaded(load_plain_module(source, recipe))
    folder = find_folder(source, hub)
    exportable, tokenizer = load_checkpoint(folder, recipe, hub, attention)
    return Loaded(exportable, folder.path, tokenizer)
