"""*What* to export, apart from *how*: a recipe is YAML or flags, validated here and stored in the bundle.

Where the source lies and how it is fetched (revision, token, offline), overwriting and verbosity are options of a
run, not part of a recipe.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from onnxport.exporters.errors import RecipeError
from onnxport.verify.contract import Dim, Model
from onnxport.verify.tolerance import FLOAT16, FLOAT32, ElementTolerance, Statistics, Tolerance

Engine = Literal["auto", "torchscript", "dynamo", "optimum"]
Dtype = Literal["float32", "float16"]
Level = Literal["none", "basic", "extended", "all"]
Suite = Literal["quick", "standard", "full"]


class Recipe(Model):
    """Everything that decides the bytes of a bundle, besides the source and the toolchain.

    Attributes:
        task: Hugging Face task name; None: inferred from the checkpoint.
        engine: exporter; "auto": for each component, the first whose result verifies.
        opset: version of the ONNX domain that the file must import.
        dtype: dtype the weights are loaded in, whatever the checkpoint stores.
        axes: input name to one entry per dimension: an axis name, or a fixed size.
        static: axis name to the fixed size it takes instead of being dynamic.
        split: a component for each tower of a dual encoder (text_model, vision_model) instead of one graph for both.
        merged: one more component of an encoder-decoder model, which holds both graphs of its decoder.
        variants: serialised forms to make; "base" is always kept.
        level: ONNX Runtime's graph optimisation level for the serialised variants.
        target: "this-machine" allows passes whose result is tied to this CPU (level "all").
        external_data: whether weights go to a file beside the graph; "auto" by size.
        require_fusion: fused operator to the least number of nodes of it that `optimized` must have.
        rtol, atol: allowed difference of graphs in `dtype`; None: the default of that dtype. per_output overrides them
            for single outputs.
        fp16: allowed difference of the variant made from a float32 graph. int8: thresholds for quantised graphs.
        suite: collection of verification cases.
        outputs: extra outputs to keep (hidden_states, attentions).
    """

    task: str | None = None
    engine: Engine = "auto"
    opset: PositiveInt = 17
    dtype: Dtype = "float32"
    axes: dict[str, tuple[Dim, ...]] = Field(default_factory=dict)
    static: dict[str, PositiveInt] = Field(default_factory=dict)
    split: bool = False
    merged: bool = False
    variants: tuple[str, ...] = ("base", "optimized")
    level: Level = "extended"
    target: Literal["portable", "this-machine"] = "portable"
    external_data: Literal["auto", "always", "never"] = "auto"
    require_fusion: dict[str, PositiveInt] = Field(default_factory=dict)
    rtol: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    atol: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    per_output: dict[str, ElementTolerance] = Field(default_factory=dict)
    fp16: ElementTolerance = ElementTolerance(rtol=FLOAT16.rtol, atol=FLOAT16.atol)
    int8: Statistics = Statistics(min_cosine=0.9, min_argmax_agreement=0.9, min_topk_agreement=0.8)
    suite: Suite = "standard"
    outputs: tuple[str, ...] = ()

    @property
    def tolerance(self) -> Tolerance:
        """The allowed difference of graphs in `dtype`, with the defaults of that dtype."""
        default = FLOAT16 if self.dtype == "float16" else FLOAT32
        return Tolerance(
            rtol=default.rtol if self.rtol is None else self.rtol,
            atol=default.atol if self.atol is None else self.atol,
            per_output=self.per_output,
        )

    @field_validator("dtype", mode="before")
    @classmethod
    def _that_the_cpu_provider_runs(cls, value: object) -> object:
        if value in ("bfloat16", "bf16"):
            raise ValueError(
                "float32, or float16 for half the size: ONNX Runtime's CPU provider has no operators for bfloat16"
            )
        return value

    @model_validator(mode="after")
    def _no_contradiction(self) -> Recipe:
        if self.level == "all" and self.target == "portable":
            raise ValueError(
                "level all ties the graph to the CPU it is made on, target portable promises the opposite; "
                "use level extended, or target this-machine"
            )
        for name, dims in self.axes.items():
            for dim in dims:
                if (dim if isinstance(dim, int) else len(dim)) < 1:
                    raise ValueError(
                        f"axes of input {name!r}: a dimension is an axis name or a size from 1, not {dim!r}"
                    )
        return self


def check_required_fusions(recipe: Recipe) -> None:
    """Makes sure that there is a graph to count the required fusions in.

    Raises:
        RecipeError: `require_fusion` asks for some, and `optimized` is not among the variants.
    """
    if recipe.require_fusion and "optimized" not in recipe.variants:
        raise RecipeError(
            "require_fusion (--require-fusion) counts nodes of the variant optimized, which is not among "
            f"{', '.join(recipe.variants)}; add --variant optimized"
        )
