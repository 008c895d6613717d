"""Any source to its components, and the files that go into the bundle with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnxport.exporters.checkpoint import load_checkpoint
from onnxport.exporters.components import not_merged, requesting, split
from onnxport.exporters.components.single import MODEL
from onnxport.exporters.errors import SourceError
from onnxport.exporters.exportable import Exportable
from onnxport.exporters.generation import recorder_of
from onnxport.exporters.generation.generation import Generation
from onnxport.exporters.generation.special_ids import check_special_ids
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.manifest import Preprocessing, Source
from onnxport.exporters.plain_module import load_plain_module
from onnxport.exporters.preprocessing import Processors, copy_files
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.source import find_folder, is_factory


@dataclass(frozen=True)
class Loaded:
    """A source in memory, as its components.

    `folder` is None for a plain module, which has no files. `own_code`: its Python files were trusted and go along.
    `record_generation` runs the model's own greedy generation; None: its task does not generate.
    """

    components: Mapping[str, Exportable]
    source: Source
    processors: Processors = field(default_factory=Processors)
    folder: Path | None = None
    own_code: bool = False
    record_generation: Callable[[], Generation] | None = None

    @property
    def preprocessing(self) -> Preprocessing:
        """How inputs are made: what the components say of it, together."""
        return Preprocessing.together([exportable.preprocessing for exportable in self.components.values()])

    def component(self, name: str | None = None) -> Exportable:
        """Returns the component of that name; None: the only one.

        Raises:
            SourceError: there is none of that name, or several and no name.
        """
        if name is not None and name not in self.components:
            raise SourceError(f"{self.source.model} has no component {name!r}; it has {', '.join(self.components)}")
        if name is not None:
            return self.components[name]
        if len(self.components) > 1:
            raise SourceError(
                f"{self.source.model} has the components {', '.join(self.components)}, and what was asked is known of "
                "models with a single graph; name one of them"
            )
        return next(iter(self.components.values()))

    def copy_files(self, target: Path) -> tuple[str, ...]:
        """Copies config, tokenizer and processor files into the bundle and returns their paths."""
        if self.folder is None:
            return ()
        return copy_files(self.folder, self.processors.tokenizer, target, code=self.own_code)


def load(source: str, recipe: Recipe, hub: HubOptions, *, wanted: str | None = None) -> Loaded:
    """Loads a checkpoint folder, a Hub id or a factory.

    Args:
        wanted: a component that is there on request only (`ON_REQUEST`) is asked for, if the model can have it.

    Raises:
        SourceError, TaskError, SignatureError, RecipeError: as `load_checkpoint`, `split` and `load_plain_module`.
    """
    if is_factory(source):
        exportable = load_plain_module(source, recipe)
        if recipe.merged:
            raise not_merged(exportable.source.architecture)
        return Loaded({MODEL: exportable}, exportable.source)
    checkpoint = load_checkpoint(find_folder(source, hub), recipe, hub)
    if wanted is not None:
        checkpoint = requesting(checkpoint, wanted)
    recorder = recorder_of(checkpoint)
    told = check_special_ids(checkpoint) if recorder is not None else ()
    components = split(checkpoint)
    first, exportable = next(iter(components.items()))
    components = {**components, first: replace(exportable, notes=(*exportable.notes, *checkpoint.notes, *told))}
    return Loaded(
        components,
        checkpoint.source,
        checkpoint.processors,
        checkpoint.folder.path,
        own_code=hub.trust_remote_code,
        record_generation=recorder,
    )
