"""The sizes of a model's images: which are fixed, at what, and whether they are the model's own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from onnxport.exporters.axes import known_static
from onnxport.exporters.errors import RecipeError, SignatureError, SourceError
from onnxport.exporters.first_line import first_line
from onnxport.exporters.inputs.picture_processor import PIXELS as PIXELS
from onnxport.exporters.inputs.picture_processor import PictureProcessor
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.suggestion import expected_one_of
from onnxport.verify.contract import Dim

BATCH, CHANNELS, HEIGHT, WIDTH = "batch", "channels", "height", "width"
_POSITIONS = {PIXELS: (BATCH, CHANNELS, HEIGHT, WIDTH), "pixel_mask": (BATCH, HEIGHT, WIDTH)}
_INTERPOLATE = "interpolate_pos_encoding"
# Most networks halve an image five times.
_STEP = 32


@dataclass(frozen=True)
class Geometry:
    """Dimensions of images; the fields are those of `ImageInputs`."""

    dims: Mapping[str, Dim]
    static: Mapping[str, int]
    height: int
    width: int
    step: int
    patches: int
    options: Mapping[str, Any]
    notes: tuple[str, ...]


def find_geometry(
    model: nn.Module, config: Any, pictures: PictureProcessor | None, recipe: Recipe, names: tuple[str, ...]
) -> Geometry:
    """Returns the dimensions that the recipe, else the processor, else the config give.

    Raises:
        RecipeError: axes that do not fit the inputs, or another number of channels.
        SignatureError: nothing tells the size.
        SourceError: the processor makes images that the model does not take.
    """
    asked = _asked(recipe, names)
    channels = _channels(config, pictures, asked.get(CHANNELS))
    axis_names = {name: dim if isinstance(dim := asked.get(name, name), str) else name for name in _POSITIONS[PIXELS]}
    static = known_static(recipe.static, [axis for name, axis in axis_names.items() if name != CHANNELS])
    fixed = {name: dim for name, dim in asked.items() if isinstance(dim, int)}
    fixed |= {name: static[axis] for name, axis in axis_names.items() if axis in static}
    own, notes = _own_size(model, config, pictures, fixed)
    height, width = fixed.get(HEIGHT, own[0]), fixed.get(WIDTH, own[1])
    dims: dict[str, Dim] = {BATCH: axis_names[BATCH], CHANNELS: channels}
    for name, size in ((HEIGHT, height), (WIDTH, width)):
        dynamic = isinstance(asked.get(name), str) and name not in fixed
        dims[name] = axis_names[name] if dynamic else size
    wanted = {HEIGHT, WIDTH} & {*asked, *fixed}
    options = _interpolation(model, config, dims) if wanted else {}
    if pictures is not None and not wanted:
        _require_taken(model, config, pictures)
    patch = _patch(config)
    grid = (height // patch[0]) * (width // patch[1]) if patch is not None else 0
    if "bool_masked_pos" in names:
        _require_patches(dims, patch)
    batch = {axis_names[BATCH]: fixed[BATCH]} if BATCH in fixed else {}
    step = max(patch) if patch is not None else _STEP
    one_size = isinstance(dims[HEIGHT], int) and isinstance(dims[WIDTH], int)
    if pictures is not None and one_size and pictures.shapes_differ:
        notes += (
            f"the graph takes images of {height}x{width} pixels, and the image processor makes other sizes of images "
            f"that are not square: resize them, or ask for any size: --axes {PIXELS}=batch,channels,height,width",
        )
    if options:
        notes += (f"positions are interpolated to the size of the image: {_INTERPOLATE}=True in every call of forward",)
    return Geometry(dims, batch, height, width, step, grid, options, notes)


def _interpolation(model: nn.Module, config: Any, dims: Mapping[str, Dim]) -> dict[str, Any]:
    """What tells a model to take images of another size than its own, if it has to be told.

    Only for a size that was asked for: a processor of another size than the model's is a fault of the checkpoint.
    """
    own = config_size(config)
    known = _INTERPOLATE in inspect.signature(model.forward).parameters
    return {_INTERPOLATE: True} if known and own is not None and (dims[HEIGHT], dims[WIDTH]) != own else {}


def _asked(recipe: Recipe, names: tuple[str, ...]) -> dict[str, Dim]:
    """What `--axes` says of batch, channels, height and width."""
    asked: dict[str, Dim] = {}
    for name, dims in recipe.axes.items():
        if name not in names or name not in _POSITIONS:
            expected = expected_one_of(name, [known for known in names if known in _POSITIONS])
            raise RecipeError(f"axes (--axes) names an unknown input {name!r}: {expected}")
        positions = _POSITIONS[name]
        if len(dims) != len(positions):
            raise RecipeError(
                f"axes (--axes) gives {name!r} {len(dims)} axes; it has {len(positions)}: {', '.join(positions)}"
            )
        for position, dim in zip(positions, dims, strict=True):
            if asked.setdefault(position, dim) != dim:
                raise RecipeError(f"axes (--axes) calls {position} both {asked[position]!r} and {dim!r}")
    strings = [dim for dim in asked.values() if isinstance(dim, str)]
    if len(set(strings)) < len(strings):
        raise RecipeError(f"axes (--axes) gives two axes of one input the same name: {', '.join(strings)}")
    return asked


def _channels(config: Any, pictures: PictureProcessor | None, asked: Dim | None) -> int:
    told = getattr(config, "num_channels", None)
    made = pictures.emitted[PIXELS].shape[1] if pictures is not None else None
    if pictures is not None and isinstance(told, int) and told != made:
        raise SourceError(
            f"the image processor {pictures.name} makes images of {made} channels, the model takes {told} "
            "(num_channels in config.json); put the model's own preprocessor_config.json into the checkpoint"
        )
    channels = int(made or told or 3)
    if isinstance(asked, int) and asked != channels:
        raise RecipeError(f"axes (--axes) gives {PIXELS!r} {asked} channels; the model takes {channels}")
    return channels


def _own_size(
    model: nn.Module, config: Any, pictures: PictureProcessor | None, fixed: Mapping[str, int]
) -> tuple[tuple[int, int], tuple[str, ...]]:
    """The size in pixels (height, width) where the recipe gives none, and what is to be said of it."""
    if pictures is not None:
        height, width = pictures.emitted[PIXELS].shape[2:]
        return (int(height), int(width)), ()
    size = config_size(config)
    if size is None and not {HEIGHT, WIDTH} <= set(fixed):
        raise SignatureError(
            f"nothing tells the size of the images of {type(model).__name__}: there is no image processor, and its "
            "config no image_size; add preprocessor_config.json, or give the size: "
            "--static height=224 --static width=224"
        )
    size = size or (fixed[HEIGHT], fixed[WIDTH])
    told = f"{fixed.get(HEIGHT, size[0])}x{fixed.get(WIDTH, size[1])}"
    return size, (f"the checkpoint has no image processor: images are random, of {told} pixels",)


def config_size(config: Any) -> tuple[int, int] | None:
    """`image_size` of a config as (height, width) in pixels, None where it has none."""
    return _pair(getattr(config, "image_size", None))


def _patch(config: Any) -> tuple[int, int] | None:
    return _pair(getattr(config, "patch_size", None))


def _pair(told: Any) -> tuple[int, int] | None:
    if isinstance(told, int) and told > 0:
        return told, told
    if isinstance(told, (list, tuple)) and len(told) == 2 and all(isinstance(one, int) for one in told):
        return int(told[0]), int(told[1])
    return None


def _require_patches(dims: Mapping[str, Dim], patch: tuple[int, int] | None) -> None:
    named = [name for name in (HEIGHT, WIDTH) if isinstance(dims[name], str)]
    if named:
        raise RecipeError(
            f"{' and '.join(named)} cannot be dynamic in the task masked-im: the number of patches in bool_masked_pos "
            "would follow from them; give fixed sizes"
        )
    if patch is None:
        raise SignatureError("the config has no patch_size, which tells the number of patches in bool_masked_pos")


def _require_taken(model: nn.Module, config: Any, pictures: PictureProcessor) -> None:
    """A processor of another model makes images that this one refuses, or of which it does not see the edges.

    Models that take any size have an `image_size` all the same: the model itself is asked, where the two differ.
    """
    height, width = (int(size) for size in pictures.emitted[PIXELS].shape[2:])
    own, patch = config_size(config), _patch(config)
    if own is not None and (height, width) != own:
        made = torch.from_numpy(pictures.emitted[PIXELS])
        reason = _refusal(model, made)
        # What it says of images of its own size too (that there is no text beside them) is not about the size.
        if reason is not None and reason != _refusal(model, made.new_zeros((*made.shape[:2], *own))):
            asking = f"--static {HEIGHT}={height} --static {WIDTH}={width}"
            takes = _INTERPOLATE in inspect.signature(model.forward).parameters
            raise SourceError(
                f"the image processor makes images of {height}x{width} pixels, the model takes {own[0]}x{own[1]} "
                f"(image_size in config.json) and fails on others: {reason}; mend the size in preprocessor_config.json"
                + (f", or have the positions interpolated to these images: {asking}" if takes else "")
            )
    if patch is not None and (height % patch[0] or width % patch[1]) and _blind_edges(model, pictures, patch):
        raise SourceError(
            f"images of {height}x{width} pixels are no multiple of the model's patches of {patch[0]}x{patch[1]}: it "
            "does not see the pixels at the right and lower edges; mend the size in preprocessor_config.json"
        )


def _refusal(model: nn.Module, pixels: torch.Tensor) -> str | None:
    """What the model says of images that it does not take; None: it takes them."""
    try:
        _run(model, pixels)
    except Exception as e:  # noqa: BLE001  (whatever it says is the answer)
        return f"{type(e).__name__}: {first_line(e)}"
    return None


def _blind_edges(model: nn.Module, pictures: PictureProcessor, patch: tuple[int, int]) -> bool:
    pixels = torch.from_numpy(pictures.emitted[PIXELS])
    changed = pixels.clone()
    below, beside = pixels.shape[2] % patch[0], pixels.shape[3] % patch[1]
    if below:
        changed[:, :, -below:, :] += 1
    if beside:
        changed[:, :, :, -beside:] += 1
    try:
        return all(torch.equal(a, b) for a, b in zip(_run(model, pixels), _run(model, changed), strict=True))
    except Exception:  # noqa: BLE001  (that a model fails on its inputs is found and told elsewhere)
        return False


def _run(model: nn.Module, pixels: torch.Tensor) -> list[torch.Tensor]:
    dtype = next(model.parameters()).dtype
    with torch.inference_mode():
        result = model(pixel_values=pixels.to(dtype))
    return [value for value in result.values() if isinstance(value, torch.Tensor)]
