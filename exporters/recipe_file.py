"""Reads recipes: YAML files and the shipped ones of `configs/`, with flags laid over them.

Everything is refused here that can be refused without a model: unknown keys, wrong types, contradictions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError

from onnxport.exporters.errors import RecipeError
from onnxport.exporters.recipe import Recipe, check_required_fusions
from onnxport.exporters.suggestion import expected_one_of

Location = tuple[str | int, ...]
"""Where in a recipe: keys, and indices of lists."""

_SUFFIXES = (".yaml", ".yml")

_WORDS = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "text",
    "a valid boolean": "true or false",
    "a valid array": "a list",
    "an object": "a mapping",
}
"""What pydantic calls a thing, to what YAML calls it."""

_FLAGS = {"variants": "--variant", "outputs": "--output"}
"""Fields whose flag on the command line has another name."""


def load_recipe(name_or_path: str) -> Recipe:
    """Returns the shipped recipe of that name, or the one in that YAML file.

    What ends in .yaml or .yml, or contains a path separator, is a file; anything else is a name.

    Raises:
        RecipeError: there is no such recipe, the file cannot be read, or what it says is not a recipe.
    """
    path = Path(name_or_path)
    if path.suffix in _SUFFIXES or any(separator in name_or_path for separator in "/\\"):
        try:
            return parse_recipe(path.read_text(encoding="utf-8"), name_or_path)
        except (OSError, UnicodeDecodeError) as e:
            why = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
            raise RecipeError(f"recipe {name_or_path} cannot be read: {why}; give a YAML file or a shipped name") from e
    texts = _shipped_texts()
    if name_or_path not in texts:
        hint = f"; to read a file of that name, write ./{name_or_path}" if path.is_file() else ""
        raise RecipeError(f"no recipe is called {name_or_path!r}: {expected_one_of(name_or_path, texts)}{hint}")
    return parse_recipe(texts[name_or_path], name_or_path)


def shipped() -> dict[str, str]:
    """Returns the name of every shipped recipe with its description: the comment its file starts with."""
    return {name: text.partition("\n")[0].lstrip("# ").strip() for name, text in _shipped_texts().items()}


def override(recipe: Recipe, **flags: Any) -> Recipe:
    """Returns `recipe` with the flags that were given; a flag that is None or empty was not.

    Mappings (`axes`, `static`, `require_fusion`) are laid over the recipe's key by key; everything else replaces it.

    Raises:
        RecipeError: a flag's value does not fit, or contradicts the rest.
    """
    data = recipe.model_dump(mode="json")
    for field, value in flags.items():
        if value is None or (isinstance(value, (list, tuple, dict)) and not value):
            continue
        data[field] = {**data[field], **value} if isinstance(value, Mapping) else value
    result = _checked(data, _flag_name)
    check_required_fusions(result)  # only now: a file may leave it to the flags
    return result


def parse_recipe(text: str, origin: str) -> Recipe:
    """Returns the recipe that a YAML text describes; `origin` names it in messages.

    Raises:
        RecipeError: not YAML, a key given twice or unknown, or a value that does not fit; with the line.
    """
    try:
        return _parsed(text, origin)
    except yaml.MarkedYAMLError as e:
        line = f" line {e.problem_mark.line + 1}" if e.problem_mark else ""
        raise RecipeError(f"{origin}{line}: this is not YAML: {e.problem}") from e
    except yaml.YAMLError as e:
        raise RecipeError(f"{origin}: this is not YAML: {e}") from e
    except RecursionError as e:
        raise RecipeError(f"{origin}: a value contains itself, or values are nested too deeply") from e
    except (ValueError, TypeError) as e:  # what YAML takes for a number, a date or a key, and Python or JSON do not
        raise RecipeError(f"{origin}: a value cannot be read: {e}") from e


def _parsed(text: str, origin: str) -> Recipe:
    node = yaml.compose(text, Loader=_Loader)
    data = yaml.load(text, Loader=_Loader)
    if data is None or node is None:
        return Recipe()
    if not isinstance(data, dict):
        raise RecipeError(f"{origin}: a recipe is a mapping like 'opset: 17', this is a {type(data).__name__}")
    _refuse_repeated_keys(node, origin)
    lines = dict(_lines(node))

    def place(location: Location) -> str:
        known = next((lines[location[:n]] for n in range(len(location), 0, -1) if location[:n] in lines), None)
        return f"{origin} line {known}: {_dotted(location)}" if known else f"{origin}: {_dotted(location)}"

    return _checked(data, place)


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 1e-3 as text; people write it as a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _shipped_texts() -> dict[str, str]:
    folder = files("onnxport.configs")
    found = {f.name.removesuffix(".yaml"): f.read_text("utf-8") for f in folder.iterdir() if f.name.endswith(".yaml")}
    return dict(sorted(found.items()))


def _checked(data: object, place: Callable[[Location], str]) -> Recipe:
    """Returns the recipe, or raises one RecipeError that names every mistake; `place` says where in the user's words.

    Strict, so that "17" or true is no opset; through JSON, which knows lists where the recipe has tuples.
    """
    try:
        recipe = Recipe.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as e:
        raise RecipeError("\n".join(_explain(error, place) for error in _distinct(e))) from e
    problems = [f"{place(location)}: {problem}" for location, problem in _unknown_names(recipe)]
    if problems:
        raise RecipeError("\n".join(problems))
    return recipe


def _unknown_names(recipe: Recipe) -> Iterator[tuple[Location, str]]:
    """Yields the names that no registry has; the schema leaves them open."""
    from onnxport.exporters.tasks import TASKS
    from onnxport.exporters.variants import KINDS

    if recipe.task is not None and recipe.task not in TASKS:
        yield ("task",), f"seen {recipe.task!r}; {expected_one_of(recipe.task, TASKS)}"
    for index, name in enumerate(recipe.variants):
        if name not in KINDS:
            yield ("variants", index), f"seen {name!r}; {expected_one_of(name, KINDS)}"
        elif name in recipe.variants[:index]:
            yield ("variants", index), f"{name!r} is given twice; give it once"


def _lines(node: yaml.Node, at: Location = ()) -> Iterator[tuple[Location, int]]:
    """Yields (path of keys and indices, line from 1) for everything in a YAML document."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*at, key.value), key.start_mark.line + 1
            yield from _lines(value, (*at, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*at, index), value.start_mark.line + 1
            yield from _lines(value, (*at, index))


def _refuse_repeated_keys(node: yaml.Node, origin: str) -> None:
    """PyYAML lets the last of two equal keys win in silence."""
    seen: dict[Location, int] = {}
    for path, line in _lines(node):
        if path in seen:
            raise RecipeError(f"{origin} line {line}: {_dotted(path)} is given twice, first on line {seen[path]}")
        seen[path] = line


def _distinct(error: ValidationError) -> list[Any]:
    """One error per place: a union reports each of its members."""
    found: dict[Location, Any] = {}
    for one in error.errors(include_url=False):
        location = one["loc"]
        while location and location[-1] in ("int", "str"):
            location = location[:-1]
        found.setdefault(location, {**one, "loc": location})
    return list(found.values())


def _explain(error: Any, place: Callable[[Location], str]) -> str:
    """Returns "<place>: seen x, expected y" for one of pydantic's errors."""
    location, kind, seen = error["loc"], error["type"], error["input"]
    where = place(location)
    if not location:  # the recipe as a whole
        return where + str(error["ctx"]["error"])
    if kind == "missing":
        return f"{where}: this key is required, and missing"
    if kind == "extra_forbidden":
        return f"{where}: a recipe has no such key; {expected_one_of(str(location[-1]), _keys_beside(location))}"
    if kind == "literal_error":
        return f"{where}: seen {seen!r}; {expected_one_of(str(seen), _choices(location[0]))}"
    what = error["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    if kind.startswith(("greater_", "less_")):
        what = f"a number {what}"
    return f"{where}: seen {seen!r}; expected {_WORDS.get(what, what)}"


def _keys_beside(location: Location) -> list[str]:
    """The keys that are valid where an unknown one was found."""
    model: Any = Recipe
    for key in location[:-1]:
        model = model.model_fields[key].annotation if key in getattr(model, "model_fields", {}) else None
        if model is None:
            return ["rtol", "atol"]  # an entry of per_output
    return list(model.model_fields)


def _choices(field: str | int) -> list[str]:
    return [str(choice) for choice in get_args(Recipe.model_fields[str(field)].annotation)]


def _dotted(location: Location) -> str:
    return ".".join(str(part) for part in location)


def _flag_name(location: Location) -> str:
    if not location:
        return ""
    field = str(location[0])
    flag = _FLAGS.get(field, "--" + field.replace("_", "-"))
    return " ".join([flag, *(str(part) for part in location[1:] if isinstance(part, str))])
