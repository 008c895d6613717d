"""Small real checkpoints made in code: weights N(0, 0.3), so that outputs are large enough to test anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zoo import text

CheckpointMaker = Callable[..., Path]


@pytest.fixture(scope="session")
def make_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> CheckpointMaker:
    """make_checkpoint("bert", "fill-mask") -> folder; extra keywords go to the config. Made once per arguments."""
    made: dict[str, Path] = {}

    def make(
        model_type: str = "bert",
        task: str = "feature-extraction",
        *,
        tokenizer: bool = True,
        token_types: bool = True,
        **settings: object,
    ) -> Path:
        key = repr((model_type, task, tokenizer, token_types, sorted(settings.items(), key=str)))
        if key in made:
            return made[key]
        folder = tmp_path_factory.mktemp(f"{model_type}-{task}")
        text.write(model_type, task, folder, tokenizer=tokenizer, token_types=token_types, **settings)
        return made.setdefault(key, folder)

    return make


@pytest.fixture
def plain_modules(monkeypatch: pytest.MonkeyPatch) -> str:
    """Makes tests/plain_modules.py importable and returns its name, for sources like "plain_modules:tagger"."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return "plain_modules"
