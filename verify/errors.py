"""The one base error, and the errors of this room.

A message says what was seen, what was expected and what to do. The command line turns every `OnnxportError` into
one line and exit code 2; a check that fails is no error but a verdict (exit code 1).
"""


class OnnxportError(Exception):
    """Base of every error that onnxport raises on purpose."""


class VerificationError(OnnxportError):
    """The question could not be put: no cases, a case that does not fit the graph, golden tensors that are missing."""


class ModelFileError(OnnxportError):
    """A file that is missing or is not a readable ONNX model."""


class SessionError(OnnxportError):
    """ONNX Runtime could not load or run a graph, or does not have the provider that was asked for."""


class ProviderError(SessionError):
    """The session would not run on the provider that was asked for."""
