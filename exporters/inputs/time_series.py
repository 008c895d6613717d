"""Inputs for a model that reads the past of a time series in one window of fixed length."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxport.exporters.axes import axis_range, named_axes
from onnxport.exporters.errors import SignatureError
from onnxport.exporters.exportable import Arrays
from onnxport.exporters.inputs.seed import seeded
from onnxport.exporters.manifest import Preprocessing
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, Dim, Vocabulary

if TYPE_CHECKING:
    from onnxport.exporters.checkpoint import Checkpoint

PAST = "past_values"
_EXAMPLE_BATCH = 2


@dataclass(frozen=True)
class TimeSeriesInputs:
    """Makes `past_values`: float [batch, context length, channels], the last two fixed by the model.

    Attributes:
        batch: the name of the batch axis.
        context_length, channels: time steps in the window, and values per step.
        static: axes with a fixed size.
        dtype: numpy's name of the dtype.
    """

    batch: str
    context_length: int
    channels: int
    static: Mapping[str, int]
    dtype: str

    @property
    def inputs(self) -> dict[str, tuple[Dim, ...]]:
        return {PAST: (self.batch, self.context_length, self.channels)}

    @property
    def axes(self) -> dict[str, AxisRange]:
        return {self.batch: axis_range(self.batch, self.static)}

    @property
    def example(self) -> dict[str, int]:
        return {self.batch: self.static.get(self.batch, _EXAMPLE_BATCH)}

    @property
    def mask(self) -> str | None:
        return None

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        return {}

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing(max_length=self.context_length, feature_size=self.channels)

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        """White noise, N(0, 1)."""
        return {PAST: rng.normal(size=(sizes[self.batch], self.context_length, self.channels)).astype(self.dtype)}

    def cases(self, suite: str) -> list[Case]:
        """See `InputMaker.cases`."""
        batches = [1, 3] if suite == "quick" else [1, 3, 5] if suite == "standard" else [1, 3, 5, 17]
        sizes = dict.fromkeys(self.static.get(self.batch, batch) for batch in batches)
        cases = []
        for batch in sizes:
            name = f"random.{batch}"
            cases.append(Case(name, self.sample({self.batch: batch}, seeded(name))))
        kinds = self._series()
        if suite == "quick":
            kinds = {name: kinds[name] for name in ("series.seasonal", "series.walk")}
        rows = self.static.get(self.batch, 1)
        return [*cases, *(Case(name, {PAST: np.repeat(row[None], rows, axis=0)}) for name, row in kinds.items())]

    def _series(self) -> dict[str, np.ndarray]:
        """What series look like: [context length, channels], each channel with a phase of its own."""
        steps = np.arange(self.context_length)[:, None] + 3 * np.arange(self.channels)[None, :]
        noise = seeded("series").normal(size=steps.shape)
        kinds = {
            "series.seasonal": 20 + 0.05 * steps + 4 * np.sin(2 * np.pi * steps / 24) + 0.5 * noise,
            "series.walk": np.cumsum(noise, axis=0),
            "series.zero": np.zeros(steps.shape),
            "series.constant": np.full(steps.shape, 7.5),
            "series.step": np.where(steps > steps.mean(), 100.0, -1.0) + 0.1 * noise,
            "series.outlier": noise + 50.0 * (steps == steps[len(steps) // 2]),
        }
        return {name: series.astype(self.dtype) for name, series in kinds.items()}


def time_series_inputs(checkpoint: Checkpoint) -> TimeSeriesInputs:
    """What the config says of the window.

    Raises:
        SignatureError: the model needs an input that cannot be made, or does not say what its window is; or it hides
            parts of it at random.
        RecipeError: axes that do not fit.
    """
    model = checkpoint.model
    kind = type(model).__name__
    parameters = inspect.signature(model.forward).parameters
    needed = [name for name, p in parameters.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    if needed != [PAST]:
        raise SignatureError(f"{kind} needs {', '.join(needed)}; of a time series, onnxport can make {PAST} alone")
    config = getattr(model, "config", checkpoint.config)
    context_length, channels = (_size(config, name, kind) for name in ("context_length", "num_input_channels"))
    if getattr(config, "do_mask_input", None):
        raise SignatureError(
            f"{kind} hides parts of its input at random, as config.json has do_mask_input true: it never answers the "
            "same; set do_mask_input to false in config.json, which is for pretraining alone"
        )
    default: dict[str, tuple[Dim, ...]] = {PAST: ("batch", context_length, channels)}
    names, static = named_axes(default, checkpoint.recipe)
    return TimeSeriesInputs(
        batch=str(names[PAST][0]),
        context_length=context_length,
        channels=channels,
        static=static,
        dtype=checkpoint.recipe.dtype,
    )


def _size(config: Any, name: str, kind: str) -> int:
    size = getattr(config, name, None)
    if not isinstance(size, int) or size < 1:
        raise SignatureError(f"config.json of {kind} has {name} {size}; expected a number of at least 1")
    return size
