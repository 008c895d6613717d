"""`onnxport env`."""

from __future__ import annotations

from dataclasses import asdict

from onnxport.exporters.cli.chatter import hushed
from onnxport.exporters.cli.console import Console
from onnxport.exporters.cli.options import AsJson, Debug, Quiet

EXAMPLES = "Example:\n\nonnxport env --json"


def env(as_json: AsJson = False, quiet: Quiet = False, debug: Debug = False) -> int:
    """Show versions, execution providers and CPU features: what to put into a bug report."""
    console = Console(quiet=quiet, as_json=as_json)
    with hushed(debug=debug):
        from onnxport.exporters.environment import environment

        seen = environment()
    rows = {
        "python": seen.python,
        "platform": seen.platform,
        "cpu": f"{seen.cpu}, {seen.cpu_count} usable",
        "cpu features": " ".join(seen.cpu_features) or "unknown",
        "providers": ", ".join(seen.providers),
        **{name: version or "not installed" for name, version in seen.packages.items()},
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        console.data(f"{name:<{width}}  {value}", indent=" " * (width + 2))
    console.document(asdict(seen))
    return 0
