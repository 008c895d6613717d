"""Which graph of a model a file holds: its name says so, in the words of Optimum, which are those of a bundle."""

from __future__ import annotations

from pathlib import Path

from onnxport.exporters.errors import SourceError
from onnxport.exporters.loading import Loaded
from onnxport.exporters.variants import KINDS


def named_graph(path: Path) -> str:
    """Returns what a file is called, without what the name of a variant adds: "decoder_model" of
    decoder_model_quantized.onnx."""
    endings = [kind.file.removeprefix("{component}") for kind in KINDS.values()]
    fitting = [ending for ending in endings if path.name.endswith(ending)]
    return path.name.removesuffix(max(fitting, key=len, default=path.suffix))


def component_of_file(path: Path, loaded: Loaded, component: str | None) -> str:
    """Returns the component that a file holds: `component` where it is given, else what the file is called.

    Whatever it is called, a file of a model that is one graph holds that.

    Raises:
        SourceError: there is no such component; the file's name is that of none of several.
    """
    known = loaded.components
    if component is not None:
        loaded.component(component)
        return component
    if len(known) == 1:
        return next(iter(known))
    name = named_graph(path)
    if name not in known:
        raise SourceError(
            f"{loaded.source.model} has the components {', '.join(known)}, and {path.name} is named after none of "
            "them; say which one it is with --component"
        )
    return name
