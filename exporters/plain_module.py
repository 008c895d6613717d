"""A plain PyTorch module as a source: "package.module:factory".

The factory takes no arguments and returns `(module, example_inputs)` or `(module, example_inputs, axes)`:

- `example_inputs`: a mapping from forward's parameter names to tensors, a tuple bound to them in order, or a callable
  that makes such a mapping from the size of each axis, given as keyword arguments (`make(batch=2, length=9)`);
- `axes`: input name to one entry per dimension, an axis name or a fixed size. `--axes` overrides it. Without either,
  every dimension is fixed.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onnxport.exporters.axes import axis_range, known_static
from onnxport.exporters.errors import SignatureError, SourceError
from onnxport.exporters.exportable import Arrays, Exportable, Sampler
from onnxport.exporters.inputs.seed import seeded
from onnxport.exporters.manifest import Source
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.source import meant_factory
from onnxport.exporters.suggestion import expected_one_of, nearest
from onnxport.exporters.tasks import PLAIN_MODULE_TASK
from onnxport.verify.cases import Case
from onnxport.verify.contract import Dim

Axes = Mapping[str, tuple[Dim, ...]]


@dataclass(frozen=True)
class ResizedExample:
    """Makes inputs of other sizes, and other values, from one example.

    Floating point inputs are drawn with the example's mean and deviation. Of the others every value is one of the
    example's (ids stay in range), or lies between two of them where the example is sorted and so may be offsets: these
    keep their order and their first value. A single number stays what it is.
    """

    example: Arrays
    axes: Axes

    def __call__(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        inputs = {}
        for name, array in self.example.items():
            shape = tuple(
                sizes[axis] if isinstance(axis, str) else size
                for axis, size in zip(self.axes[name], array.shape, strict=True)
            )
            if np.issubdtype(array.dtype, np.floating):
                drawn = rng.normal(array.mean(), array.std() or 1.0, shape) if array.size else np.zeros(shape)
            elif not array.ndim or not array.size:
                drawn = np.broadcast_to(array, shape)
            elif array.ndim == 1 and array.dtype != bool and array.size > 1 and np.all(np.diff(array) >= 0):
                drawn = np.sort(rng.integers(array[0], array[-1], shape, endpoint=True))
                drawn[:1] = array[0]
            else:
                drawn = rng.choice(array.ravel(), shape)
            inputs[name] = np.array(drawn, dtype=array.dtype, order="C")
        return inputs


def load_plain_module(source: str, recipe: Recipe) -> Exportable:
    """Calls the factory and works out names, axes and cases.

    Raises:
        SourceError: the factory cannot be imported, raises, or returns something else.
        SignatureError: example inputs or axes do not fit forward.
        RecipeError: an unknown input or axis name.
    """
    if recipe.outputs:
        raise SignatureError(
            f"--output {recipe.outputs[0]}: a plain module returns what it returns; --output asks a checkpoint for more"
        )
    result = _call_factory(source)
    module, given, axes = _unpack(source, result)
    dtype = getattr(torch, recipe.dtype)
    notes = _require_dense_real(source, module, recipe.dtype)
    module = module.to(dtype).eval()
    axes = {**axes, **recipe.axes}
    sample: Sampler
    if callable(given):
        traced = _traced_sizes(dict.fromkeys(_named(axes), 0), recipe.static)
        sample = _calling(source, given, module, dtype)
        example = sample(traced, np.random.default_rng(0))
        shapes = _axes_of(example, axes)
    else:
        example = _as_arrays(given, module, dtype)
        shapes = _axes_of(example, axes)
        sample = ResizedExample(example, shapes)
    sizes = _sizes_of(example, shapes)
    static = known_static(recipe.static, list(sizes))
    sizes = _traced_sizes(sizes, static)
    dynamic = [axis for axis in sizes if axis not in static]
    return Exportable(
        module=module,
        inputs=shapes,
        axes={axis: axis_range(axis, static) for axis in sizes},
        example=sizes,
        sample=sample,
        cases=lambda suite: _cases(sample, sizes, dynamic, suite),
        source=Source(
            model=source,
            architecture=type(module).__name__,
            task=recipe.task or PLAIN_MODULE_TASK,
            weights_sha256=_hash_state(module),
        ),
        notes=(*notes, *_note_fixed_sizes(example, sizes)),
    )


def _call_factory(source: str) -> Any:
    path, _, attribute = source.partition(":")
    try:
        factory: Any = importlib.import_module(path)
    except (Exception, SystemExit) as e:
        raise SourceError(f"cannot import {source}: {type(e).__name__}: {e}{meant_factory(source)}") from e
    for name in attribute.split("."):
        try:
            factory = getattr(factory, name)
        except (Exception, SystemExit) as e:
            guess = nearest(name, [known for known in dir(factory) if not known.startswith("_")])
            hint = f"; did you mean {guess!r}?" if guess else ""
            raise SourceError(f"cannot import {source}: {type(e).__name__}: {e}{hint}") from e
    if not callable(factory):
        raise SourceError(
            f"{source} is a {type(factory).__name__}; expected a callable that returns (module, example_inputs)"
        )
    try:
        return factory()
    except (Exception, SystemExit) as e:
        raise SourceError(f"the factory {source} raised {type(e).__name__}: {e}") from e


def _unpack(source: str, result: Any) -> tuple[nn.Module, Any, dict[str, tuple[Dim, ...]]]:
    expected = "(module, example_inputs) or (module, example_inputs, axes)"
    if not isinstance(result, tuple) or len(result) not in (2, 3) or not isinstance(result[0], nn.Module):
        seen = type(result).__name__
        if isinstance(result, tuple):
            seen = f"({', '.join(type(item).__name__ for item in result)})"
        raise SourceError(f"the factory {source} returned {seen}; expected {expected}")
    module, given, axes = (*result, {})[:3]
    if not isinstance(axes, Mapping):
        raise SourceError(f"the factory {source} returned axes of type {type(axes).__name__}; expected a mapping")
    return module, given, {str(name): _dims(name, dims) for name, dims in axes.items()}


def _dims(name: str, dims: Any) -> tuple[Dim, ...]:
    if isinstance(dims, (list, tuple)) and all(isinstance(d, (str, int)) and d and d is not True for d in dims):
        return tuple(dims)
    raise SignatureError(
        f"axes of {name!r} are {dims!r}; expected one entry per dimension, an axis name or a fixed size, like "
        "['batch', 16]"
    )


def _require_dense_real(source: str, module: nn.Module, dtype: str) -> tuple[str, ...]:
    """Refuses parameters that a graph cannot hold; returns a note where they will be converted."""
    if isinstance(module, torch.jit.ScriptModule):
        raise SourceError(f"{source} returns a compiled ScriptModule; return the nn.Module it was made from")
    converted = set()
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_complex() or tensor.is_quantized or tensor.is_meta or tensor.layout is not torch.strided:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise SourceError(
                f"{name} of {source} is a {kind} tensor with layout {tensor.layout} on {tensor.device}; a graph holds "
                "dense real tensors with data: convert it in the factory"
            )
        if tensor.is_floating_point() and str(tensor.dtype) != f"torch.{dtype}":
            converted.add(str(tensor.dtype).removeprefix("torch."))
    return tuple(f"parameters in {kind} are converted to {dtype} (--dtype)" for kind in sorted(converted))


def _note_fixed_sizes(example: Arrays, sizes: Mapping[str, int]) -> tuple[str, ...]:
    name, array = next(iter(example.items()))
    if sizes or not array.ndim:
        return ()
    dims = ",".join(["batch", *map(str, array.shape[1:])])
    return (f"no axes were given: every size is fixed as in the example; for a dynamic one: --axes {name}={dims}",)


def _calling(source: str, make: Callable[..., Any], module: nn.Module, dtype: torch.dtype) -> Sampler:
    def sample(sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        # The user's callable draws from torch's generator; a fixed seed keeps the cases, and so the bundle, the same.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**31)))
            try:
                made = make(**sizes)
            except (Exception, SystemExit) as e:
                raise SourceError(f"example inputs of {source} at {dict(sizes)} raised {type(e).__name__}: {e}") from e
        return _as_arrays(made, module, dtype)

    return sample


def _as_arrays(given: Any, module: nn.Module, dtype: torch.dtype) -> Arrays:
    """Binds example inputs to forward's parameters, by keyword; floating point ones in the module's dtype."""
    if isinstance(given, Tensor):
        given = (given,)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    signature = inspect.signature(module.forward).parameters
    parameters = {name: p for name, p in signature.items() if p.kind in kinds}
    if len(parameters) < len(signature):
        raise SignatureError(f"forward{inspect.signature(module.forward)} takes inputs without names; give each a name")
    named: Mapping[str, Any]
    if isinstance(given, Mapping):
        named = given
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        unknown = [name for name in named if name not in parameters and not takes_any]
        if unknown:
            raise SignatureError(f"example input {unknown[0]!r} is no parameter of forward({', '.join(parameters)})")
    elif isinstance(given, (tuple, list)):
        if len(given) > len(parameters):
            raise SignatureError(f"{len(given)} example inputs, but forward takes {', '.join(parameters)}")
        named = dict(zip(parameters, given, strict=False))
    else:
        raise SignatureError(f"example inputs are a {type(given).__name__}; expected a mapping or tuple of tensors")
    odd = [name for name, value in named.items() if not isinstance(value, Tensor)]
    if odd or not named:
        seen = f"{odd[0]!r} is a {type(named[odd[0]]).__name__}" if odd else "there are none"
        raise SignatureError(f"example inputs must be tensors: {seen}")
    cast = {name: value.to(dtype) if value.is_floating_point() else value for name, value in named.items()}
    return {name: value.detach().cpu().numpy() for name, value in cast.items()}


def _axes_of(example: Arrays, asked: Axes) -> dict[str, tuple[Dim, ...]]:
    unknown = [name for name in asked if name not in example]
    if unknown:
        raise SignatureError(f"axes name an unknown input {unknown[0]!r}: {expected_one_of(unknown[0], example)}")
    shapes = {}
    for name, array in example.items():
        dims = asked.get(name, array.shape)
        if len(dims) != array.ndim:
            raise SignatureError(f"axes of {name!r} are {list(dims)}, but the example has shape {list(array.shape)}")
        wrong = [dim for dim, size in zip(dims, array.shape, strict=True) if isinstance(dim, int) and dim != size]
        if wrong:
            raise SignatureError(
                f"axes of {name!r} fix a size of {wrong[0]}, but the example has shape {list(array.shape)}"
            )
        shapes[name] = tuple(dims)
    return shapes


def _sizes_of(example: Arrays, shapes: Axes) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, dims in shapes.items():
        for dim, size in zip(dims, example[name].shape, strict=True):
            if isinstance(dim, str) and sizes.setdefault(dim, size) != size:
                raise SignatureError(f"axis {dim!r} is {sizes[dim]} in one example input and {size} in {name!r}")
    return sizes


def _traced_sizes(example: Mapping[str, int], static: Mapping[str, int]) -> dict[str, int]:
    """Sizes to trace at: the example's, changed where needed so that all dynamic ones differ and are at least 2.

    A tracer takes a size of 1 for a constant, and two axes of one size for the same axis.
    """
    sizes = {axis: static[axis] for axis in example if axis in static}
    for axis, size in example.items():
        if axis not in static:
            size = max(size, 2)
            while size in sizes.values():
                size += 1
            sizes[axis] = size
    return {axis: sizes[axis] for axis in example}


def _named(shapes: Axes) -> list[str]:
    return list(dict.fromkeys(dim for dims in shapes.values() for dim in dims if isinstance(dim, str)))


def _cases(sample: Sampler, example: Mapping[str, int], dynamic: list[str], suite: str) -> list[Case]:
    """Cases at sizes that were not traced; other values at the only size there is, where nothing is dynamic.

    A case is the same in every suite that has it: its name is the seed.
    """

    def case(name: str, sizes: Mapping[str, int]) -> Case:
        return Case(name, sample(sizes, seeded(name)))

    if not dynamic:
        return [case(f"values.{i}", example) for i in range({"quick": 1, "standard": 3}.get(suite, 6))]
    wanted = [{**example, **{axis: example[axis] * 2 + 1 for axis in dynamic}}]
    wanted += [{**example, axis: example[axis] + 3} for axis in dynamic]
    if suite != "quick":
        wanted += [{**example, axis: 1} for axis in dynamic] + [{**example, **dict.fromkeys(dynamic, 1)}]
    if suite == "full":
        wanted += [{**example, axis: example[axis] * 4} for axis in dynamic]
    by_name = {"sizes." + "x".join(map(str, sizes.values())): sizes for sizes in wanted}
    return [case(name, sizes) for name, sizes in by_name.items()]


def _hash_state(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
