"""What a tokenizer gave for a set of texts, stored so that another one can be held against it without the first."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from onnxport.verify.contract import Model
from onnxport.verify.errors import VerificationError


class TokenizerSettings(Model):
    """What turns ids into batches. `max_length` in tokens; None: no limit. `pad_token` None: rows cannot be padded."""

    padding_side: Literal["left", "right"] = "right"
    truncation_side: Literal["left", "right"] = "right"
    pad_token: str | None = None
    max_length: int | None = None


class Encoding(Model):
    """One text, or pair of texts, with its special tokens. `type_ids` None: the tokenizer emits none."""

    text: str
    pair: str | None = None
    ids: tuple[int, ...]
    type_ids: tuple[int, ...] | None = None
    mask: tuple[int, ...] = ()


class TokenizerRecord(Model):
    """`encodings` are neither padded nor truncated; `padded` were encoded together, padded to the longest; `truncated`
    are cut to `truncated_to` tokens."""

    schema_version: Literal[1] = 1
    settings: TokenizerSettings
    encodings: tuple[Encoding, ...]
    padded: tuple[Encoding, ...] = ()
    truncated_to: int
    truncated: tuple[Encoding, ...] = ()

    def to_json(self) -> str:
        """Returns the record as JSON: equal records give equal text."""
        return self.model_dump_json(indent=None, exclude_defaults=False) + "\n"


def load_tokenizer_record(path: Path) -> TokenizerRecord:
    """Reads what `to_json` wrote.

    Raises:
        VerificationError: the file is missing or holds something else.
    """
    try:
        return TokenizerRecord.model_validate_json(path.read_bytes())
    except OSError as e:
        raise VerificationError(f"{path} cannot be read: {e.strerror or e}. Export again.") from e
    except ValidationError as e:
        raise VerificationError(f"{path} is no record of a tokenizer: {e.errors()[0]['msg']}. Export again.") from e
