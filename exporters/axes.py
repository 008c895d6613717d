"""`axes` and `static` of a recipe, applied to the axes that a task gives its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxport.exporters.errors import RecipeError
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.suggestion import expected_one_of
from onnxport.verify.contract import AxisRange, Dim


def token_axes(
    default: tuple[str, ...], inputs: Sequence[str], recipe: Recipe
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Returns the names of the axes that all token inputs share, and the fixed size of those that are static.

    `--axes input_ids=rows,tokens` renames an axis for every input; a number in its place fixes it, like `--static`.

    Raises:
        RecipeError: an unknown input or axis, the wrong number of axes, or two names for one axis.
    """
    names = list(default)
    static: dict[str, int] = {}
    renamed: dict[int, str | int] = {}
    for name, dims in recipe.axes.items():
        if name not in inputs:
            raise RecipeError(f"axes (--axes) names an unknown input {name!r}: {expected_one_of(name, inputs)}")
        if len(dims) != len(default):
            raise RecipeError(
                f"axes (--axes) gives {name!r} {len(dims)} axes; it has {len(default)}: {', '.join(default)}"
            )
        for position, dim in enumerate(dims):
            if renamed.setdefault(position, dim) != dim:
                raise RecipeError(
                    f"axes (--axes) calls axis {default[position]!r} both {renamed[position]!r} and {dim!r}"
                )
            if isinstance(dim, int):
                static[default[position]] = dim
            else:
                names[position] = dim
    if len(set(names)) < len(names):
        raise RecipeError(f"axes (--axes) gives two axes of one input the same name: {', '.join(names)}")
    static |= known_static(recipe.static, names)
    return tuple(names), static


def named_axes(
    inputs: Mapping[str, tuple[Dim, ...]], recipe: Recipe
) -> tuple[dict[str, tuple[Dim, ...]], dict[str, int]]:
    """Returns inputs of any shapes with the names that the recipe gives their axes, and the fixed size of static ones.

    `--axes input_values=rows,samples` renames an axis in every input that has it; a number in its place fixes it, like
    `--static`. A dimension that the model fixes keeps its size.

    Raises:
        RecipeError: an unknown input or axis, the wrong number of axes, two names for one axis, or another size for a
            dimension that the model fixes.
    """
    renamed: dict[str, Dim] = {}
    for name, dims in recipe.axes.items():
        if name not in inputs:
            raise RecipeError(f"axes (--axes) names an unknown input {name!r}: {expected_one_of(name, inputs)}")
        default = inputs[name]
        shown = ", ".join(map(str, default))
        if len(dims) != len(default):
            raise RecipeError(f"axes (--axes) gives {name!r} {len(dims)} axes; it has {len(default)}: {shown}")
        for axis, dim in zip(default, dims, strict=True):
            if isinstance(axis, int):
                if dim != axis:
                    raise RecipeError(
                        f"axes (--axes) gives {dim!r} for a dimension of {name!r} that is {axis}: {shown}"
                    )
            elif renamed.setdefault(axis, dim) != dim:
                raise RecipeError(f"axes (--axes) calls axis {axis!r} both {renamed[axis]!r} and {dim!r}")
    static = {axis: dim for axis, dim in renamed.items() if isinstance(dim, int)}
    names = {axis: dim for axis, dim in renamed.items() if isinstance(dim, str)}
    result = {name: tuple(names.get(str(dim), dim) for dim in dims) for name, dims in inputs.items()}
    for dims in result.values():
        if len({dim for dim in dims if isinstance(dim, str)}) < sum(isinstance(dim, str) for dim in dims):
            raise RecipeError(f"axes (--axes) gives two axes of one input the same name: {', '.join(map(str, dims))}")
    axes = list(dict.fromkeys(dim for dims in result.values() for dim in dims if isinstance(dim, str)))
    return result, static | known_static(recipe.static, axes)


def known_static(static: Mapping[str, int], axes: Sequence[str]) -> dict[str, int]:
    """Returns `static` unchanged.

    Raises:
        RecipeError: it names an axis that is not among `axes`.
    """
    for axis in static:
        if axis not in axes:
            raise RecipeError(f"static (--static) names an unknown axis {axis!r}: {expected_one_of(axis, axes)}")
    return dict(static)


def axis_range(axis: str, static: Mapping[str, int], least: int = 1, most: int | None = None) -> AxisRange:
    """Returns the sizes that an axis may take: its own where it is among the `static` ones, else `least` to `most`."""
    return AxisRange(min=static.get(axis, least), max=static.get(axis, most))
