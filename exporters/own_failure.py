"""What a module's own forward raises is told as its failure; a fault of the program, or of the machine, is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from onnxport.exporters.errors import SignatureError
from onnxport.verify.errors import OnnxportError
from onnxport.verify.runners import one_line


@contextmanager
def own_failure(told: str, advice: str = "") -> Iterator[None]:
    """Runs a call of a module, in inference mode.

    Args:
        told: what the message begins with: "the module fails on case padding.left".
        advice: what it ends with.

    Raises:
        SignatureError: the module failed. Errors of onnxport and memory that ran out pass through as they are.
    """
    try:
        with torch.inference_mode():
            yield
    except OnnxportError:
        raise
    except Exception as e:  # a forward raises whatever its author chose
        if isinstance(e, MemoryError) or "allocate memory" in str(e):  # the machine's fault, not the module's
            raise
        raise SignatureError(f"{told}: {type(e).__name__}: {one_line(e)}{advice}") from e
