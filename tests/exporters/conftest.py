"""What every bundle needs and no test of bundles is about."""

from __future__ import annotations

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
