"""`onnxport recipes`."""

from __future__ import annotations

from onnxport.exporters.cli.console import Console
from onnxport.exporters.cli.options import AsJson, Debug, Quiet

EXAMPLES = "Example:\n\nonnxport recipes\n\nonnxport export ./checkpoint out --recipe sentence-embeddings"


def recipes(as_json: AsJson = False, quiet: Quiet = False, debug: Debug = False) -> int:
    """List the shipped recipes, for `onnxport export --recipe NAME`."""
    from onnxport.exporters.recipe_file import shipped

    console = Console(quiet=quiet, as_json=as_json)
    described = shipped()
    width = max(map(len, described))
    for name, description in described.items():
        console.data(f"{name:<{width}}  {description}", indent=" " * (width + 2))
    console.document({"recipes": described})
    return 0
