"""Keeps what other libraries say away from the terminal: progress bars, log lines, deprecation warnings, prints.

A process-wide setting, so the command line owns it and the library does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sys
import warnings
from collections.abc import Iterator

_ENVIRONMENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_SYMLINKS_WARNING": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRANSFORMERS_VERBOSITY": "critical",
}
"""Read by the libraries when they are imported, so set before."""

_FATAL, _WARNING = 4, 2
"""Severities of ONNX Runtime's logger. What it logs as an error it also raises, and the message is shown once."""


@contextlib.contextmanager
def hushed(*, debug: bool, onnxruntime: bool = True) -> Iterator[None]:
    """Silences other libraries inside the context, unless `debug`; what they print goes to stderr in any case.

    Stdout carries a command's data and nothing else. `onnxruntime` False: it is not loaded just to be silenced.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_native_output(debug))
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        if not debug:
            stack.enter_context(_environment())
            stack.enter_context(_no_warnings())
            logging.disable(logging.CRITICAL)
            stack.callback(logging.disable, logging.NOTSET)
            if onnxruntime:
                import onnxruntime as ort

                ort.set_default_logger_severity(_FATAL)
                stack.callback(ort.set_default_logger_severity, _WARNING)
        yield


@contextlib.contextmanager
def _native_output(debug: bool) -> Iterator[None]:
    """Sends what libraries print below Python to stderr (`debug`) or nowhere: torch dumps graphs it cannot export."""
    sys.stdout.flush()
    kept = os.dup(1)
    other = os.dup(2) if debug else os.open(os.devnull, os.O_WRONLY)
    os.dup2(other, 1)
    os.close(other)
    try:
        yield
    finally:
        try:
            if os.name != "nt":  # where ctypes has no name for the program itself
                ctypes.CDLL(None).fflush(None)  # what C still holds back would come out on stdout later
        finally:
            os.dup2(kept, 1)
            os.close(kept)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    missing = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """Replaces the printing itself: torch and transformers put their own filters in front of any set here."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda *_args, **_kwargs: None
        yield
