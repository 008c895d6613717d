"""Whether a decoder has positions enough for a step with a cache."""

from __future__ import annotations

from collections.abc import Mapping

from onnxport.exporters.errors import SignatureError


def require_positions(architecture: str, limit: int | None, example: Mapping[str, int], new: str, past: str) -> None:
    """Makes sure that the step that is traced fits into the decoder.

    Args:
        limit: the most tokens that the decoder takes, earlier ones among them; None: no bound known.
        example: sizes of the axes at which the step is traced.
        new, past: the axes of the new and of the earlier tokens.

    Raises:
        SignatureError: it does not.
    """
    needed = example[new] + example[past]
    if limit is not None and needed > limit:
        raise SignatureError(
            f"{architecture} takes {limit} tokens at most (the length of its position table, or of its tokenizer's "
            f"texts), and the step that is traced has {needed}: {new} {example[new]} after {past} {example[past]}; fix "
            f"smaller sizes (--static {new}=N --static {past}=N)"
        )
