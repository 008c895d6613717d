"""How a source is fetched. Not part of a recipe: it does not change what is exported."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from onnxport.exporters.errors import SourceError


@dataclass(frozen=True)
class HubOptions:
    """Options for a source that lies on the Hugging Face Hub.

    Attributes:
        revision: branch, tag or commit; None: the default branch.
        token: access token for private models; None: the one that huggingface_hub finds by itself.
        cache_dir: where downloads are kept; None: huggingface_hub's own folder.
        offline: never touch the network; what is not in the cache is an error.
        trust_remote_code: run the Python code that a checkpoint brings with it.
    """

    revision: str | None = None
    token: str | None = field(default=None, repr=False)
    cache_dir: Path | None = None
    offline: bool = False
    trust_remote_code: bool = False


def require_no_code(error: Exception, label: str) -> None:
    """Tells of code that was not run, where that is the error: transformers names its own argument and not the flag.

    Raises:
        SourceError: transformers refused to run Python code that the checkpoint `label` brings.
    """
    if "trust_remote_code=True" in str(error):
        raise SourceError(
            f"{label} brings Python code of its own (auto_map in its settings), which is not run unasked; read it, and "
            "pass --trust-remote-code if it may run"
        ) from error
