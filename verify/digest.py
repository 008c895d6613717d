"""The sha256 of a file, without holding the file in memory."""

from __future__ import annotations

import hashlib
from pathlib import Path

_CHUNK_BYTES = 2**20


def file_sha256(path: Path) -> str:
    """Returns the sha256 of the whole file in lower-case hex.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
