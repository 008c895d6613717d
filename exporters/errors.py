"""One error class per stage of an export. Message: what was seen, what was expected, what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.verify.errors import OnnxportError

if TYPE_CHECKING:
    from onnxport.verify.report import Report


class RecipeError(OnnxportError):
    """A recipe or flag that does not make sense: unknown key, unknown axis, opset out of range."""


class SourceError(OnnxportError):
    """A source that cannot be loaded: missing path, no checkpoint, corrupt weights, a factory that raises."""


class TaskError(OnnxportError):
    """A task that cannot be inferred, is unknown, or does not fit the checkpoint."""


class SignatureError(OnnxportError):
    """Inputs or axes that do not fit the module's forward."""


class EngineError(OnnxportError):
    """The engine could not turn the module into a graph."""


class ReadBackError(OnnxportError):
    """The file does not say what was asked: opset, names, axes or dtypes differ."""


class VariantError(OnnxportError):
    """A variant could not be made from the graph."""


class BundleError(OnnxportError):
    """A bundle that cannot be written or read: OUT exists, bundle.json is malformed or leads out of its folder."""


class DatasetError(OnnxportError):
    """A data set that cannot be read, or that does not fit the task or the labels of the model."""


class VerificationFailed(OnnxportError):
    """The bundle was built, and does not compute what the PyTorch model computes.

    Attributes:
        report: every check with its verdict and numbers.
        path: the folder the bundle is kept in for a closer look (`OUT.failed`, or `OUT.failed-2` ... where that is
            something else); None where it could not be kept. OUT itself is untouched.
    """

    def __init__(self, message: str, *, report: Report, path: Path | None) -> None:
        super().__init__(message)
        self.report = report
        self.path = path
