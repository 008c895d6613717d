"""Which optimisation makes a graph wrong: the graph is made, or loaded, again with some of the steps left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from onnxport.exporters.errors import VariantError
from onnxport.exporters.localization.findings import PassFinding
from onnxport.exporters.variants import VariantBuilder
from onnxport.exporters.variants.child import run_in_child
from onnxport.exporters.variants.fusion import FUSION_KINDS, fuse
from onnxport.verify.cases import Case
from onnxport.verify.contract import GraphContract
from onnxport.verify.errors import SessionError
from onnxport.verify.runners import CPU, Runner, make_session_options, one_line
from onnxport.verify.tolerance import Criterion
from onnxport.verify.trial import Trial

AS_WRITTEN = {"graph_optimization_level": "none"}
"""Session options that run every node as it stands in the file."""


@dataclass(frozen=True)
class Judge:
    """Tells whether a graph agrees with the reference on one case."""

    reference: Runner
    case: Case
    criterion: Criterion
    contract: GraphContract

    def agrees(self, path: Path, options: Mapping[str, str], disabled: Sequence[str] = ()) -> bool:
        """`disabled` names passes of ONNX Runtime; a graph that does not load or run does not agree."""
        try:
            candidate = _Candidate(path, options, disabled)
        except SessionError:
            return False
        trial = Trial(
            self.reference,
            candidate,
            [self.case],
            self.criterion,
            contract=self.contract,
            component="",
            variant="",
        )
        return all(
            not outcome.failure and all(comparison.agrees for comparison in outcome.comparisons)
            for outcome in trial.outcomes
        )


class _Candidate:
    def __init__(self, path: Path, options: Mapping[str, str], disabled: Sequence[str]) -> None:
        import onnxruntime

        self.name = path.name
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), make_session_options(options), providers=[CPU], disabled_optimizers=list(disabled)
            )
        except Exception as e:  # ONNX Runtime's exceptions share no base class
            raise SessionError(f"ONNX Runtime does not load {path.name}: {one_line(e)}") from e

    def run(self, case: Case) -> dict[str, np.ndarray]:
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, dict(case.inputs)), strict=True))


def culprits(steps: Sequence[str], agrees_without: Callable[[frozenset[str]], bool]) -> tuple[str, ...] | None:
    """Bisects over the steps that together make a graph wrong.

    Args:
        steps: in the order in which they happen. The one to blame is the one that breaks what those before it made.
        agrees_without: whether the graph agrees if these are left out; it does not if none is.

    Returns:
        Steps without which it agrees; None: it does not agree without any of them.
    """
    if not agrees_without(frozenset(steps)):
        return None
    left_out: frozenset[str] = frozenset()
    while True:
        right, wrong = 0, len(steps)  # so many of the first steps leave it right, and make it wrong
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if agrees_without(left_out | frozenset(steps[middle:])):
                right = middle
            else:
                wrong = middle
        left_out |= {steps[right]}
        if agrees_without(left_out):
            return tuple(step for step in steps if step in left_out)


def blame_load(
    judge: Judge, path: Path, options: Mapping[str, str], stage: Literal["load", "session"] = "load"
) -> PassFinding | None:
    """Finds the pass of ONNX Runtime to blame where a graph agrees as it stands and not with these options.

    Returns:
        None: the graph does not agree as it stands either, or agrees with the options.
    """
    if not judge.agrees(path, AS_WRITTEN) or judge.agrees(path, options):
        return None
    worker = "onnxport.exporters.localization.session_passes_worker:changing_passes"
    passes = run_in_child(worker, path.parent, graph=path.name, options=dict(options), disabled=[])["passes"]
    found = culprits(passes, lambda off: judge.agrees(path, options, sorted(off)))
    when = "when it loads the file" if stage == "load" else "when the variant was made"
    if found is None:
        return PassFinding(
            stage=stage,
            detail=f"ONNX Runtime breaks it {when}, and not by one of the passes that say they changed it: "
            f"{', '.join(passes) or 'none'}",
        )
    return PassFinding(stage=stage, passes=found, detail=f"ONNX Runtime's pass {_and(found)} breaks it {when}")


def blame_making(judge: Judge, builder: VariantBuilder, variant: str) -> PassFinding:
    """Makes a variant again from its base, step by step, and finds the one after which it no longer agrees.

    Args:
        judge: with the criterion of the fused graph, which has the precision of the base.
        builder: of the base, with the recipe of the bundle.

    Raises:
        VariantError: a step failed.
    """
    embeddings = variant != "int8"
    fused = (builder.fused if embeddings else builder.fused_but_embeddings).path
    if not judge.agrees(fused, AS_WRITTEN):
        return _blame_fusion(judge, builder, embeddings)
    if variant in ("fp16", "int8"):
        told = "the conversion to float16" if variant == "fp16" else "the quantisation to 8 bits"
        return PassFinding(stage="conversion", passes=(variant,), detail=f"the fused graph agrees: it is {told}")
    level = {"graph_optimization_level": builder.level}
    found = blame_load(judge, fused, level, stage="session")
    if found is not None:
        return found
    if variant == "ort":
        detail = "the optimised graph agrees: it is the conversion to ONNX Runtime's own format"
        return PassFinding(stage="conversion", passes=("ort",), detail=detail)
    return PassFinding(
        stage="none",
        detail="made again from base by the recipe of the bundle, it agrees: the file is not what these steps make "
        "here (it was changed, or made by other versions)",
    )


def _blame_fusion(judge: Judge, builder: VariantBuilder, embeddings: bool) -> PassFinding:
    target = builder.intermediate("fused_without.onnx")

    def agrees_without(kinds: frozenset[str]) -> bool:
        try:
            fused = fuse(
                builder.source,
                builder.graph.hints,
                target,
                builder.children,
                sizes=builder.graph.example,
                embeddings=embeddings,
                disabled=sorted(kinds),
            )
        except VariantError:
            return False
        return judge.agrees(fused.path, AS_WRITTEN)

    found = culprits(FUSION_KINDS, agrees_without)
    if found is None:
        return PassFinding(stage="fusion", detail="fusion breaks it, and not by one of the kinds that can be left out")
    return PassFinding(stage="fusion", passes=found, detail=f"the fusion {_and(found)} breaks it")


def _and(names: Sequence[str]) -> str:
    return " with ".join(names)
