"""Python code that a checkpoint brings: what its configurations name (`auto_map`), and what that imports beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxport.exporters.errors import SourceError

_CONFIGURATIONS = ("config.json", "tokenizer_config.json", "preprocessor_config.json", "processor_config.json")
# "modeling_own.OwnModel", or "owner/repository--modeling_own.OwnModel" for code of another repository.
_TARGET = re.compile(r"([\w.-]+/[\w.-]+--)?\w+\.\w+")


def require_readable_map(auto_map: Any, file: str, label: str) -> None:
    """transformers takes `auto_map` apart without looking, and blames what it was about to load.

    Raises:
        SourceError: it is no mapping of names to classes in Python files.
    """
    if auto_map is None:
        return
    if not isinstance(auto_map, Mapping):
        raise SourceError(
            f"auto_map in {file} of {label} is a {type(auto_map).__name__}; expected an object, as "
            '{"AutoModel": "modeling_own.OwnModel"}'
        )
    for name, one in _classes(auto_map):
        if not (one is None or (isinstance(one, str) and _TARGET.fullmatch(one))):
            raise SourceError(
                f"auto_map in {file} of {label} has {one!r} for {name}; expected a class in a Python file beside it, "
                'as "modeling_own.OwnModel"'
            )


def require_own_class(model: Any, auto_map: Any, auto_class: str, label: str) -> tuple[str, ...]:
    """The checkpoint's code was not run: was the class that it names another one than transformers' own?

    Returns what a person should know: nothing where the checkpoint brings no class for `auto_class`.

    Raises:
        SourceError: the checkpoint's class has another name than the one that transformers loaded in its place.
    """
    target = (auto_map or {}).get(auto_class)
    if not isinstance(target, str):
        return ()
    own, loaded = target.rpartition(".")[2], type(model).__name__
    if own != loaded:
        raise SourceError(
            f"{label} brings Python code of its own ({target}), which is not run unasked, and transformers would take "
            f"its {loaded} instead; read the code, and pass --trust-remote-code if it may run"
        )
    return (f"the checkpoint brings code of its own for {own}, which was not run: this is transformers' class of it",)


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
    auto_map: Any = json.loads(file.read_text(encoding="utf-8")).get("auto_map")
    for _, one in _classes(auto_map) if isinstance(auto_map, Mapping) else ():
        if isinstance(one, str) and "--" not in one:
            yield one.rpartition(".")[0]


def _classes(auto_map: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What stands for each of transformers' names; of a tokenizer, its slow class and its fast one."""
    for name, target in auto_map.items():
        yield from ((name, one) for one in (target if isinstance(target, list | tuple) else [target]))
