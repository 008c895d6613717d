"""Runners give outputs for a case: a graph in ONNX Runtime, stored outputs, or anything with the same two members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onnxport.verify.cases import Case
from onnxport.verify.contract import Dim, GraphContract, TensorSpec
from onnxport.verify.errors import ProviderError, SessionError, VerificationError

if TYPE_CHECKING:
    import onnxruntime

CPU = "CPUExecutionProvider"

LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
"""Level of optimisation to its name in onnxruntime.GraphOptimizationLevel."""
_THREAD_OPTIONS = ("intra_op_num_threads", "inter_op_num_threads")
_FATAL = 4  # failures reach the caller as exceptions; ONNX Runtime's own lines on stderr would only repeat them
# ONNX Runtime's names of element types that differ from numpy's.
_NUMPY_NAMES = {"float": "float32", "double": "float64"}


class Runner(Protocol):
    """Anything that turns a case into named outputs."""

    @property
    def name(self) -> str:
        """What messages call this runner."""

    def run(self, case: Case) -> dict[str, np.ndarray]:
        """Returns every output by name."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """Replays stored outputs: case name to output name to array.

    `precise` are those that the same function gives in float64, for the cases where they were computed.
    """

    name: str
    outputs: Mapping[str, Mapping[str, np.ndarray]]
    precise: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)

    def run(self, case: Case) -> dict[str, np.ndarray]:
        """Returns what is stored for the case of that name.

        Raises:
            VerificationError: nothing is stored for it.
        """
        if case.name not in self.outputs:
            raise VerificationError(
                f"{self.name} holds no outputs for case {case.name}; it has those of "
                f"{', '.join(sorted(self.outputs)) or 'none'}. Run the cases it was made from."
            )
        return dict(self.outputs[case.name])


class OrtRunner:
    """A graph in ONNX Runtime, on exactly the provider that was asked for.

    Args:
        path: a `.onnx` or `.ort` file.
        provider: execution provider; there is no fallback to another one.
        session_options: "graph_optimization_level" (none, basic, extended, all; ONNX Runtime's default is all),
            "intra_op_num_threads", "inter_op_num_threads"; any other key is a session configuration entry such as
            "session.disable_prepacking".
        threads: threads within an operator; overrides "intra_op_num_threads".

    Raises:
        ProviderError: the provider is not available, or ONNX Runtime drops it.
        SessionError: an option is malformed, or the file does not load.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        provider: str = CPU,
        session_options: Mapping[str, str] | None = None,
        threads: int | None = None,
    ) -> None:
        self.path = Path(path)
        options = dict(session_options or {})
        if threads is not None:
            options["intra_op_num_threads"] = str(threads)
        self._session: onnxruntime.InferenceSession | None = _open(self.path, provider, options)
        self.provider: str = self._session.get_providers()[0]
        """The provider in use."""

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    @property
    def session(self) -> onnxruntime.InferenceSession:
        """The session.

        Raises:
            SessionError: the runner was closed.
        """
        if self._session is None:
            raise SessionError(f"The session of {self.name} is closed. Open a new OrtRunner.")
        return self._session

    @property
    def contract(self) -> GraphContract:
        """Inputs and outputs as the session reports them. A dimension without a name is called `?<tensor>.<index>`."""
        return GraphContract(
            inputs=tuple(_spec(node) for node in self.session.get_inputs()),
            outputs=tuple(_spec(node) for node in self.session.get_outputs()),
        )

    def run(self, case: Case) -> dict[str, np.ndarray]:
        """Returns every output by name.

        Raises:
            SessionError: the inputs do not fit the graph, or an operator failed.
        """
        session = self.session
        names = [node.name for node in session.get_outputs()]
        try:
            values = session.run(names, dict(case.inputs))
        except Exception as e:  # ONNX Runtime's exceptions share no base class
            raise SessionError(f"{self.name} failed on case {case.name}: {one_line(e)}") from e
        return dict(zip(names, values, strict=True))

    def close(self) -> None:
        """Releases the session with its memory and threads. A second call does nothing."""
        self._session = None

    def __enter__(self) -> OrtRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def one_line(error: BaseException) -> str:
    """Returns the message of an error in one line of at most 400 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 400 else f"{text[:397]}..."


def _open(path: Path, provider: str, options: Mapping[str, str]) -> onnxruntime.InferenceSession:
    import onnxruntime

    available = onnxruntime.get_available_providers()
    if provider not in available:
        raise ProviderError(
            f"{provider} is not available; this ONNX Runtime has {', '.join(available)}. "
            "Ask for one of these, or install the onnxruntime package that has it."
        )
    if not path.is_file():
        raise SessionError(f"There is no file {path}. Give the path of a .onnx or .ort file.")
    session_options = make_session_options(options)
    try:
        session = onnxruntime.InferenceSession(
            str(path), sess_options=session_options, providers=[provider], enable_fallback=0
        )
    except Exception as e:  # ONNX Runtime's exceptions share no base class
        raise SessionError(f"ONNX Runtime does not load {path.name}: {one_line(e)}") from e
    used = session.get_providers()
    if used[0] != provider:  # a provider whose libraries are missing is dropped without an exception
        raise ProviderError(
            f"{path.name} was to run on {provider} and would run on {used[0]}. "
            f"Check that the libraries of {provider} are installed, or ask for {used[0]}."
        )
    return session


def make_session_options(options: Mapping[str, str]) -> Any:
    """Returns an onnxruntime.SessionOptions; keys as in `OrtRunner`.

    Raises:
        SessionError: an option is malformed.
    """
    import onnxruntime

    result = onnxruntime.SessionOptions()
    result.log_severity_level = _FATAL
    for key, value in options.items():
        if key == "graph_optimization_level":
            if value not in LEVELS:
                raise SessionError(f"graph_optimization_level is {value!r}; it must be one of {', '.join(LEVELS)}.")
            result.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[value])
        elif key in _THREAD_OPTIONS:
            if not value.isdecimal():
                raise SessionError(f"{key} is {value!r}; it must be a number of threads (0: ONNX Runtime chooses).")
            setattr(result, key, int(value))
        else:
            try:
                result.add_session_config_entry(key, value)
            except Exception as e:  # ONNX Runtime's exceptions share no base class
                raise SessionError(f"ONNX Runtime refuses the session option {key}={value!r}: {one_line(e)}") from e
    return result


def _spec(node: Any) -> TensorSpec:
    """`node` is an onnxruntime.NodeArg; its shape holds sizes, axis names, and None where a dimension has no name."""
    element = node.type.removeprefix("tensor(").removesuffix(")")
    shape: tuple[Dim, ...] = tuple(
        dim if isinstance(dim, int | str) and dim != "" else f"?{node.name}.{i}" for i, dim in enumerate(node.shape)
    )
    return TensorSpec(name=node.name, dtype=_NUMPY_NAMES.get(element, element), shape=shape)
