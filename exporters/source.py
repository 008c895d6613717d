"""Where a model comes from: a local folder, a Hub id, or a factory of a plain module."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from onnxport.exporters.errors import SourceError
from onnxport.exporters.first_line import first_line
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.sentence_modules import read_stage_entries
from onnxport.verify.contract import inside
from onnxport.verify.digest import file_sha256

_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.\-]*(/[A-Za-z0-9][\w.\-]*)?")

# Weights by preference, as transformers looks for them; the first that is there is what is loaded.
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
# What is fetched from the Hub: weights of one kind, settings, tokenizers; no TensorFlow, Flax or ONNX copies.
_SETTINGS = [
    "*.json",
    "*.txt",
    "*.model",
    "*.jinja",
    "*.py",
    "LICENSE*",
    "NOTICE*",
    "vocab.*",
    "merges.*",
    "*.bpe",
    "*.codes",
    "*_Dense/pytorch_model.bin",
]


@dataclass(frozen=True)
class CheckpointFolder:
    """A folder with config.json. `label` is a Hub id or the folder's name; `revision` the commit, for a Hub id."""

    path: Path
    label: str
    revision: str | None = None


def is_factory(source: str) -> bool:
    """Whether the source names a callable, "package.module:factory", and no such path exists."""
    return bool(_FACTORY.fullmatch(source)) and not Path(source).exists()


def meant_factory(source: str) -> str:
    """Returns "; did you mean 'package.mine:factory'?" for one written as a file, package/mine.py:factory; else ""."""
    file, _, attribute = source.partition(".py:")
    guess = f"{file.removeprefix('./').replace('/', '.')}:{attribute}"
    return f"; did you mean {guess!r}?" if _FACTORY.fullmatch(guess) and attribute else ""


def find_folder(source: str, hub: HubOptions) -> CheckpointFolder:
    """Finds the checkpoint folder, downloading it when the source is a Hub id.

    Raises:
        SourceError: no such path; a file; no config.json; an id the Hub (or the cache, offline) does not have.
    """
    path = Path(source).expanduser()
    if path.is_file():
        raise SourceError(
            f"{source} is a file; expected a checkpoint folder (with config.json), a Hub id or module:factory"
        )
    if path.is_dir():
        _require_config(path, source)
        return CheckpointFolder(path, path.resolve().name)
    looks_like_path = source.startswith((".", "/", "~")) or source.endswith("/") or os.sep in source.replace("/", "", 1)
    if looks_like_path or not _HUB_ID.fullmatch(source):
        raise SourceError(
            f"{source} does not exist; expected a checkpoint folder, a Hub id (org/name) or module:factory"
            f"{meant_factory(source)}"
        )
    return _download(source, hub)


def _require_config(path: Path, source: str) -> None:
    if not (path / "config.json").is_file():
        held = sorted(entry.name for entry in path.iterdir())[:5]
        seen = f"it holds {', '.join(held)}" if held else "it is empty"
        raise SourceError(f"{source} is no checkpoint: no config.json ({seen}); point at the folder with config.json")


def _download(repo: str, hub: HubOptions) -> CheckpointFolder:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    def fetch(patterns: list[str]) -> Path:
        return Path(
            snapshot_download(
                repo,
                revision=hub.revision,
                token=hub.token,
                cache_dir=hub.cache_dir,
                local_files_only=hub.offline,
                allow_patterns=patterns,
            )
        )

    try:
        folder = fetch([*_SETTINGS, "*.safetensors"])
        if not weight_files(folder):
            folder = fetch([*_SETTINGS, "pytorch_model*.bin"])
    except LocalEntryNotFoundError as e:
        where = "the local cache (offline)" if hub.offline else "the local cache, and the Hub cannot be reached"
        raise SourceError(
            f"{repo} is neither a local folder nor in {where}; check the name, the network or --cache-dir"
        ) from e
    except (HfHubHTTPError, HFValidationError, OSError) as e:
        raise SourceError(f"cannot fetch {repo} from the Hub: {first_line(e)}") from e
    _require_config(folder, repo)
    # The cache keeps each commit in a folder of its own name.
    return CheckpointFolder(folder, repo, folder.name)


def weight_files(folder: Path) -> list[Path]:
    """The weight files that transformers would load from this folder, sorted; empty if there are none.

    Raises:
        SourceError: an index that is malformed.
    """
    marker = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
    if marker is None or marker.suffix != ".json":
        return [marker] if marker is not None else []
    try:
        names = set(json.loads(marker.read_text(encoding="utf-8"))["weight_map"].values())
        return sorted(folder / inside(name) for name in names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise SourceError(f"{marker.name} of {folder.name} is no index of weight files: {e}") from e


def _stage_weights(folder: Path) -> list[Path]:
    """Weights of the stages after the transformer (Dense), sorted."""
    places = sorted(folder / entry.path for entry in read_stage_entries(folder) if entry.path)
    names = ("model.safetensors", "pytorch_model.bin")
    return [place / name for place in places for name in names if (place / name).is_file()]


def hash_weights(folder: Path) -> str:
    """sha256 over every weight file: of the file itself if it is one, else of the list of names and hashes."""
    paths = [*weight_files(folder), *_stage_weights(folder)]
    hashes = [(path.relative_to(folder).as_posix(), file_sha256(path)) for path in paths]
    if len(hashes) == 1:
        return hashes[0][1]
    return hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest in hashes).encode()).hexdigest()
