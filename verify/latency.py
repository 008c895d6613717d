"""How long does a graph take? A measurement of one machine at one time: no check, and no verdict rests on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.verify.cases import Case, axis_sizes, require_cases
from onnxport.verify.own_process import durations
from onnxport.verify.report import Latency
from onnxport.verify.subject import Subject
from onnxport.verify.suites import elements

SECONDS_PER_CASE = 2.0
"""Warm-up and timed runs of one case, unless `LEAST_RUNS` take longer."""

LEAST_RUNS = 5
MOST_RUNS = 200
"""More runs of what is fast tell nothing new."""


def measure_latency(
    subject: Subject, cases: Sequence[Case], *, seconds: float = SECONDS_PER_CASE
) -> tuple[Latency, ...]:
    """Times a graph in a process of its own: two sessions in one process would disturb each other.

    Each case is warmed up for a fifth of the time, and then run 5 to 200 times, as long as there is time.

    Args:
        subject: opened with its own provider and session options; "intra_op_num_threads" among them sets the threads.
        cases: the smallest, a middle one and the largest of their different shapes are timed (`different_sizes`).
        seconds: for each case.

    Returns:
        One measurement per case, the smallest first.

    Raises:
        SessionError: the file does not load in a new process, or a case fails there.
        VerificationError: there are no cases, or they do not fit the subject.
    """
    require_cases(cases, subject.contract)
    chosen = different_sizes(cases)
    found = durations(subject, chosen, seconds=seconds, least_runs=LEAST_RUNS, most_runs=MOST_RUNS)
    measured = []
    for case in chosen:
        runs = np.asarray(found.milliseconds[case.name], dtype=np.float64)
        p50, p90 = np.percentile(runs, (50, 90), method="inverted_cdf")  # durations that were seen, no means of two
        measured.append(
            Latency(
                component=subject.component,
                variant=subject.variant,
                case=case.name,
                sizes=axis_sizes(case, subject.contract),
                threads=found.threads,
                runs=len(runs),
                min_ms=float(runs.min()),
                p50_ms=float(p50),
                p90_ms=float(p90),
            )
        )
    return tuple(measured)


def different_sizes(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Returns a case of the smallest shapes, one of middle ones and one of the largest; fewer if shapes are fewer."""
    by_shape: dict[tuple[tuple[str, tuple[int, ...]], ...], Case] = {}
    for case in cases:
        by_shape.setdefault(tuple((name, case.inputs[name].shape) for name in sorted(case.inputs)), case)
    ordered = sorted(by_shape.values(), key=elements)
    return tuple(ordered[at] for at in dict.fromkeys((0, len(ordered) // 2, len(ordered) - 1)))
