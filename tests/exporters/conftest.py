"""What every bundle needs and no test of bundles is about."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Callable
from typing import Any

import pytest

from onnxport.exporters.manifest import Component, Manifest, Preprocessing, Source, Toolchain, Verification
from onnxport.exporters.recipe import Recipe


@pytest.fixture
def make_manifest() -> Callable[..., Manifest]:
    """make_manifest(component, recipe=...) -> a manifest, unsealed, of that one component; keywords replace fields."""

    def make(component: Component, **fields: Any) -> Manifest:
        defaults = {
            "source": Source(model="tiny", architecture="Tiny", task="feature-extraction", weights_sha256="0" * 64),
            "toolchain": Toolchain(
                onnxport="0",
                python="3",
                torch="2",
                transformers=None,
                optimum=None,
                onnx="1",
                onnxruntime="1",
                engine="torchscript",
                platform="linux-x86_64",
                cpu="a",
            ),
            "recipe": Recipe(),
            "components": {"model": component},
            "preprocessing": Preprocessing(),
            "verification": Verification(verdict="skip", suite="quick", rtol=1e-3, atol=1e-4),
            "files": (),
        }
        return Manifest.model_validate({**defaults, **fields})

    return make


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """on_terminal("stdout", act) -> what `act` shows while that stream is a terminal of 80 columns."""

    def show(stream: str, act: Callable[[], object]) -> str:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        with open(theirs, "w") as terminal, monkeypatch.context() as patched:
            patched.setattr(sys, stream, terminal)
            patched.setenv("TERM", "xterm")
            act()
        chunks = []
        with contextlib.suppress(OSError):  # Linux reports the end, when the other side is closed, as an I/O error
            while chunk := os.read(ours, 1 << 16):
                chunks.append(chunk)
        os.close(ours)
        return b"".join(chunks).decode()

    return show
