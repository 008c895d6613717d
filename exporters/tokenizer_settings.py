"""How a consumer batches texts, read from the tokenizer files of a bundle. Needs no transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onnxport.exporters.errors import BundleError
from onnxport.verify.tokenizer_record import TokenizerSettings

NO_LIMIT = 1_000_000
"""transformers' word for "no limit" is about 1e30."""


def read_settings(folder: Path, otherwise: TokenizerSettings) -> TokenizerSettings:
    """Returns what tokenizer_config.json says; special_tokens_map.json names the padding token where that does not.

    `otherwise`: what holds where the files are silent, as those of many old checkpoints are (transformers knows the
    defaults of its tokenizer classes).

    Raises:
        BundleError: a file is not JSON, or a value is of no known kind.
    """
    config = _read(folder / "tokenizer_config.json")
    pad = config.get("pad_token") or _read(folder / "special_tokens_map.json").get("pad_token") or otherwise.pad_token
    limit = config.get("model_max_length", otherwise.max_length)
    try:
        return TokenizerSettings(
            padding_side=config.get("padding_side", otherwise.padding_side),
            truncation_side=config.get("truncation_side", otherwise.truncation_side),
            pad_token=pad.get("content") if isinstance(pad, dict) else pad,
            max_length=None if limit is None or limit >= NO_LIMIT else int(limit),
        )
    except (TypeError, ValueError) as e:
        raise BundleError(f"tokenizer_config.json of {folder.name} is malformed ({e}); copy the bundle again") from e


def read_mask_token(folder: Path) -> str | None:
    """Returns the token that stands for a masked one; None: the files name none. Raises as `read_settings`."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        token = _read(folder / name).get("mask_token")
        if token is not None:
            return str(token["content"] if isinstance(token, dict) else token)
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as e:
        raise BundleError(f"{path.name} of {path.parent.name} cannot be read ({e}); copy the bundle again") from e
    if not isinstance(content, dict):
        raise BundleError(f"{path.name} of {path.parent.name} holds a {type(content).__name__}, expected an object")
    return content
