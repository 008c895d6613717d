"""bundle.json: the schema of what a bundle says of itself (schema_version 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from onnxport.exporters.recipe import Recipe
from onnxport.verify.contract import MANIFEST_NAME as MANIFEST_NAME
from onnxport.verify.contract import AxisRange, BundlePath, FileRecord, Model, TensorSpec, Vocabulary
from onnxport.verify.relations import Invariant


class Source(Model):
    """Where the model came from. `model` is a Hub id, a folder's name or "package.module:factory"; no absolute path."""

    model: str
    revision: str | None = None
    architecture: str
    model_type: str | None = None
    task: str
    weights_sha256: str


class Toolchain(Model):
    """Versions that decide the bytes."""

    onnxport: str
    python: str
    torch: str
    transformers: str | None
    optimum: str | None
    onnx: str
    onnxruntime: str
    engine: str
    platform: str
    cpu: str


class VariantEntry(Model):
    """One serialised form of a component. `ops`, `fusions`: "domain:op" to a count; "ai.onnx" is the ONNX domain."""

    file: BundlePath
    external_data: BundlePath | None = None
    precision: str
    opsets: dict[str, int]
    ir_version: int
    ops: dict[str, int]
    fusions: dict[str, int]
    level: str
    session_options: dict[str, str]
    portable: bool
    min_onnxruntime: str
    size_bytes: int
    notes: tuple[str, ...] = ()


class Attempt(Model):
    """An engine that was tried for a component and left, and why."""

    engine: str
    reason: str


class Component(Model):
    """One graph of the model and its variants.

    `engine` made it; `attempts` are those tried before. `mask` names the input whose zeros mark padded positions;
    `vocabularies`: input name to the ids it may hold; `decisions` names outputs whose argmax is what a user acts on,
    with the axis. `golden` is a path in the bundle. `invariants`: which relations between cases PyTorch keeps
    (`relations.RELATIONS`); None: not measured.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    axes: dict[str, AxisRange]
    mask: str | None = None
    vocabularies: dict[str, Vocabulary] = Field(default_factory=dict)
    decisions: dict[str, int] = Field(default_factory=dict)
    engine: str
    attempts: tuple[Attempt, ...] = ()
    variants: dict[str, VariantEntry]
    golden: BundlePath | None = None
    invariants: dict[str, Invariant] | None = None


class ImagePreprocessing(Model):
    """How pixel_values [batch, channels, height, width] are made of an image; a step that is not done is None.

    `height`, `width`: of what the processor makes of a square image. `size`, `crop_size`: as the processor has them
    ("height", "width", "shortest_edge", "longest_edge", in pixels). `resample`: Pillow's name ("bicubic"). Values of 0
    to 255 are multiplied by `rescale_factor`, then `mean` is taken away and `std` divides, per channel.
    """

    channels: int
    height: int
    width: int
    channel_order: Literal["rgb", "bgr"] = "rgb"
    size: dict[str, int] | None = None
    crop_size: dict[str, int] | None = None
    resample: str | None = None
    rescale_factor: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


class Preprocessing(Model):
    """How inputs are made. `files` came with the checkpoint: tokenizer and processor, configuration, licence.

    `sampling_rate` of audio in Hz; `feature_size`: values per step of it, 1 for a waveform, else the bins of a
    spectrogram.
    """

    files: tuple[BundlePath, ...] = ()
    padding_side: str | None = None
    max_length: int | None = None
    pooling: str | None = None
    normalize: bool | None = None
    labels: dict[str, str] | None = None
    sampling_rate: int | None = None
    feature_size: int | None = None
    image: ImagePreprocessing | None = None

    @classmethod
    def together(cls, parts: Sequence[Preprocessing]) -> Preprocessing:
        """Returns what several parts of a model say, of each field what the first says that says anything."""
        told: dict[str, Any] = {
            name: value
            for part in reversed(parts)
            for name in cls.model_fields
            if (value := getattr(part, name)) not in (None, ())
        }
        return cls(**told)


class GenerationRecord(Model):
    """What the model generated greedily: a path in the bundle, and the `loop` that runs the graphs the same way (a row
    of `generation.GENERATORS`)."""

    loop: str
    file: BundlePath


class Verification(Model):
    """The verdict that the export ended with. `verdict` "skip": exported with --no-verify.

    `tokenizer` and `report` are paths in the bundle; `generation` None: nothing that the model generated is stored.
    """

    verdict: Literal["pass", "fail", "skip"]
    suite: str
    rtol: float
    atol: float
    report: BundlePath | None = None
    tokenizer: BundlePath | None = None
    generation: GenerationRecord | None = None


class Manifest(Model):
    """The whole of bundle.json. `digest` is the sha256 of the canonical JSON of everything else in it."""

    schema_version: Literal[1] = 1
    source: Source
    toolchain: Toolchain
    recipe: Recipe
    components: dict[str, Component]
    preprocessing: Preprocessing
    verification: Verification
    files: tuple[FileRecord, ...]
    digest: str = ""
