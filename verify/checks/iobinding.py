"""iobinding.*: do bound inputs and outputs give what a plain run gives?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnxport.verify.cases import Case
from onnxport.verify.compare import compare
from onnxport.verify.probe import Probe
from onnxport.verify.report import CheckResult
from onnxport.verify.runners import OrtRunner, one_line
from onnxport.verify.worst import Located

# Where a provider keeps its tensors; the others work in the memory of the CPU.
_DEVICES = {"CUDAExecutionProvider": "cuda", "TensorrtExecutionProvider": "cuda", "ROCMExecutionProvider": "cuda"}


def check_match(probe: Probe) -> list[CheckResult]:
    """Inputs bound as OrtValues, outputs bound to memory that ONNX Runtime allocates, or that was allocated before.

    One result per way, over a few cases. Memory that was allocated before holds another run's leavings: NaN, or ones.
    """
    results = []
    for way, preallocate in (("allocated outputs", False), ("preallocated outputs", True)):
        try:
            found, identical = _bound(probe, preallocate)
        except Exception as e:  # noqa: BLE001  (ONNX Runtime's exceptions share no base class)
            results.append(probe.trial.result("iobinding.match", "fail", f"{way}: {one_line(e)}"))
            continue
        what = f"{way}, {'bit for bit' if identical else 'not bit for bit'}"
        results.append(probe.judge("iobinding.match", what, found))
    return results


def _bound(probe: Probe, preallocate: bool) -> tuple[list[Located], bool]:
    found = []
    identical = True
    for case in probe.few:
        expected = probe.runner.run(case)
        actual = _run_bound(probe.runner, case, expected if preallocate else None)
        identical &= all(
            np.array_equal(array, actual[name], equal_nan=array.dtype.kind == "f") for name, array in expected.items()
        )
        found += [Located(case.name, c) for c in compare(expected, actual, probe.subject.criterion)]
    return found, identical


def _run_bound(runner: OrtRunner, case: Case, like: Mapping[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """Runs a case through a binding; `like`: outputs of the shapes to allocate before the run."""
    import onnxruntime

    device = _DEVICES.get(runner.provider, "cpu")
    binding = runner.session.io_binding()
    for name, array in case.inputs.items():
        value = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), device, 0)
        binding.bind_ortvalue_input(name, value)
    names = [node.name for node in runner.session.get_outputs()]
    for name in names:
        if like is None:
            binding.bind_output(name, device)
        else:
            left = np.full_like(like[name], np.nan if like[name].dtype.kind == "f" else 1)
            binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(left, device, 0))
    runner.session.run_with_iobinding(binding)
    return dict(zip(names, binding.copy_outputs_to_cpu(), strict=True))
