"""A probe of any real graph: what the checks take that run a graph in other ways than the cases say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import onnx
import pytest

from onnxport.verify import Case, OrtRunner, Recorded
from onnxport.verify.probe import Probe
from onnxport.verify.relations import RELATIONS, Invariant
from onnxport.verify.runners import Runner
from onnxport.verify.trial import Trial

ALL_KEPT = dict.fromkeys(RELATIONS, Invariant(held=True))


@pytest.fixture
def probe_of(save, subject_of, reference: Recorded, cases: list[Case]) -> Iterator[Callable[..., Probe]]:
    """probe_of(model) -> a probe of that graph; keywords change the subject."""
    with ExitStack() as opened:

        def probe_of(
            model: onnx.ModelProto | Path,
            *,
            cases: Sequence[Case] = tuple(cases),
            reference: Runner = reference,
            suite: str = "standard",
            **changes: object,
        ) -> Probe:
            path = model if isinstance(model, Path) else save(model)
            subject = subject_of(path, **{"invariants": ALL_KEPT, **changes})
            runner = OrtRunner(path, provider=subject.provider, session_options=subject.session_options)
            opened.enter_context(runner)
            trial = Trial(
                reference,
                runner,
                cases,
                subject.criterion,
                contract=subject.contract,
                component=subject.component,
                variant=subject.variant,
            )
            return Probe(subject, runner, trial, suite)

        yield probe_of
