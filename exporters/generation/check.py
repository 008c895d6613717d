"""Do the graphs of a bundle generate what the model generated?

At every step the loop is fed the model's own token, whatever the graph chose: where all choices are equal that is the
same as generating freely, and where one is not, the later ones can still be compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from onnxport.exporters.generation import Loop, LoopGraph, loops_of
from onnxport.exporters.generation.generation import CASE, Generation
from onnxport.verify.cases import Case
from onnxport.verify.inspection import without_folder
from onnxport.verify.report import CheckResult, Verdict
from onnxport.verify.runners import OrtRunner, one_line
from onnxport.verify.subject import Subject
from onnxport.verify.tolerance import Statistics, Tolerance

LOGITS = "logits"


def check_generation(
    subjects: Sequence[Subject], components: Collection[str], generation: Generation, *, golden: bool = False
) -> list[CheckResult]:
    """Returns one result for every variant that has all components, and for every loop that these can be run in.

    A choice of the graph that differs is no fault where the model itself saw a tie: it is among the model's largest
    logits, and as near to the largest as both may be off. Graphs of lower precision are judged by their share of equal
    choices.

    Args:
        subjects: graph files, of any variants.
        components: names of all components of the model.
        generation: what the model generated.
        golden: it comes from the bundle: results are filed under golden.match instead of outputs.match.
    """
    variants = dict.fromkeys(subject.variant for subject in subjects)
    results = []
    for variant in variants:
        graphs = {subject.component: subject for subject in subjects if subject.variant == variant}
        if set(graphs) >= set(components):
            check = "golden.match" if golden else "outputs.match"
            for component, loop in loops_of(generation.loop, graphs).items():
                results.append(_check_variant(graphs, component, loop, generation, check))
    return results


def _check_variant(
    graphs: Mapping[str, Subject], component: str, loop: Loop, generation: Generation, check: str
) -> CheckResult:
    last = graphs[component]

    def result(verdict: Verdict, detail: str, **fields: Any) -> CheckResult:
        if verdict == "pass" and len(np.unique(generation.tokens)) == 1:
            token = generation.tokens.flat[0]
            verdict = "skip"
            detail = f"the model generates the token {token} only: a graph that ignores its cache could too"
        filed = {"id": check, "component": last.component, "variant": last.variant, "case": CASE, "output": LOGITS}
        return CheckResult.model_validate({**filed, "verdict": verdict, "detail": detail, **fields})

    try:
        chosen = _choices(graphs, loop, generation)
    except Exception as e:  # noqa: BLE001  (whatever stops the loop is the answer)
        # ONNX Runtime names the file by its whole path.
        told = without_folder(one_line(e), last.path, last.path.parent)
        return result("fail", f"greedy generation failed: {told}")
    equal = chosen == generation.tokens
    share = float(equal.mean())
    told = f"{int(equal.sum())} of {equal.size} tokens are those of transformers' generate"
    criterion = last.criterion
    if isinstance(criterion, Statistics):
        enough = share >= criterion.min_argmax_agreement
        wanted = "" if enough else f", wanted at least {criterion.min_argmax_agreement:.4g} (min_argmax_agreement)"
        return result(
            "pass" if enough else "fail",
            told + wanted,
            compared=equal.size,
            argmax_agreement=share,
            min_argmax_agreement_allowed=criterion.min_argmax_agreement,
        )
    allowed = criterion.of(LOGITS)
    wrong = [(row, step) for row, step in np.argwhere(~equal) if not _tie(generation, row, step, chosen, criterion)]
    if wrong:
        row, step = wrong[0]
        told += (
            f"; first other one: row {row}, step {step}: {chosen[row, step]} instead of {generation.tokens[row, step]}"
        )
    elif share < 1:
        told += "; where the others are, the model's own logits are tied within what is allowed"
    return result(
        "fail" if wrong else "pass",
        told,
        compared=equal.size,
        argmax_agreement=share,
        rtol=allowed.rtol,
        atol=allowed.atol,
    )


def _choices(graphs: Mapping[str, Subject], loop: Loop, generation: Generation) -> np.ndarray:
    """What the graphs choose at every step, int64 [batch, steps]."""
    chosen: list[np.ndarray] = []

    def choose(logits: np.ndarray) -> np.ndarray:
        # A forbidden token may be -inf; NaN is no logit, however good the rest is.
        if np.isnan(logits).any() or not np.isfinite(logits).any(axis=-1).all():
            raise ArithmeticError(f"step {len(chosen)} gave NaN, or no finite logits")
        chosen.append(logits.argmax(axis=-1))
        fed: np.ndarray = generation.tokens[:, len(chosen) - 1]
        return fed

    with ExitStack() as opened:
        runners = {
            name: opened.enter_context(
                OrtRunner(subject.path, provider=subject.provider, session_options=subject.session_options)
            )
            for name, subject in graphs.items()
        }
        loop({name: _graph(runner, graphs[name]) for name, runner in runners.items()}, generation.prompt,
             generation.steps, choose)  # fmt: skip
    return np.stack(chosen, axis=1)


def _graph(runner: OrtRunner, subject: Subject) -> LoopGraph:
    return LoopGraph(subject.contract.written().inputs, lambda inputs: runner.run(Case(CASE, inputs)))


def _tie(generation: Generation, row: int, step: int, chosen: np.ndarray, tolerance: Tolerance) -> bool:
    ids, logits = generation.top_ids[row, step], generation.top_logits[row, step]
    (at,) = np.nonzero(ids == chosen[row, step])
    if not at.size:
        return False
    allowed = tolerance.of(LOGITS)
    best, other = float(logits[0]), float(logits[at[0]])
    return best - other <= 2 * allowed.atol + allowed.rtol * (abs(best) + abs(other))
