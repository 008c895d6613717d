"""The Python files of a checkpoint that its configurations name (`auto_map`), and what those import beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CONFIGURATIONS = ("config.json", "tokenizer_config.json", "preprocessor_config.json", "processor_config.json")


def code_files(folder: Path) -> list[str]:
    """Returns their names, sorted. Other Python files of the folder are nobody's but its owner's."""
    from transformers.dynamic_module_utils import get_relative_imports

    found: set[str] = set()
    wanted = {name for file in _CONFIGURATIONS for name in _modules(folder / file)}
    while wanted:
        name = f"{wanted.pop()}.py"
        if name not in found and Path(name).name == name and (folder / name).is_file():
            found.add(name)
            wanted |= set(get_relative_imports(folder / name))
    return sorted(found)


def _modules(file: Path) -> Iterator[str]:
    """The modules in `auto_map`: "modeling_own" of "modeling_own.OwnModel"; code of another repository is not here."""
    if not file.is_file():
        return
    targets: Any = json.loads(file.read_text(encoding="utf-8")).get("auto_map") or {}
    for target in targets.values() if isinstance(targets, dict) else ():
        for one in target if isinstance(target, list) else [target]:  # a tokenizer's slow class and its fast one
            if isinstance(one, str) and "--" not in one:
                yield one.rpartition(".")[0]
