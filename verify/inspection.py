"""An inspection: a subject opened as far as the checks need it, its file read once and at most one session alive."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from onnxport.verify.contract import TensorSpec
from onnxport.verify.errors import ModelFileError, OnnxportError, SessionError
from onnxport.verify.graph_facts import GraphFacts, facts_of
from onnxport.verify.model_file import ModelFile, read_model
from onnxport.verify.report import CheckResult, Verdict
from onnxport.verify.runners import OrtRunner
from onnxport.verify.subject import Subject

# Makes the session remember which provider each node went to; an ONNX Runtime that is too old for it takes no notice.
_RECORD_ASSIGNMENT = {"session.record_ep_graph_assignment_info": "1"}


class Unavailable(OnnxportError):
    """What a check needs is not there (the file does not parse, the session does not open): the check is skipped."""


class Inspection:
    """A subject under inspection. A context manager: the session is released on exit."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._opened: OrtRunner | None = None

    def __enter__(self) -> Inspection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            self._opened.close()

    @cached_property
    def load_error(self) -> SessionError | None:
        """Why the session does not open; None if it does."""
        subject = self.subject
        try:
            options = {**_RECORD_ASSIGNMENT, **subject.session_options}
            self._opened = OrtRunner(subject.path, provider=subject.provider, session_options=options)
        except SessionError as e:
            return e
        return None

    @property
    def runner(self) -> OrtRunner:
        """The subject in ONNX Runtime, opened on first use.

        Raises:
            Unavailable: it does not load.
        """
        if self.load_error is not None or self._opened is None:
            raise Unavailable("the graph does not load")
        return self._opened

    @cached_property
    def facts_error(self) -> str | None:
        """Why the facts cannot be read from the subject's file; None if they can."""
        return self._read[2]

    @property
    def facts(self) -> GraphFacts:
        """What the ONNX file says of itself.

        Raises:
            Unavailable: the file does not parse, or is `.ort`.
        """
        _, facts, error = self._read
        if facts is None:
            raise Unavailable(error or "")
        return facts

    @property
    def interface(self) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """Inputs and outputs, from the ONNX file itself, or from the session where the file is `.ort`.

        Raises:
            Unavailable: the file does not parse, or does not load.
        """
        if self.subject.is_onnx:
            return self.facts.inputs, self.facts.outputs
        contract = self.runner.contract
        return contract.inputs, contract.outputs

    def result(self, check: str, verdict: Verdict, detail: str, **fields: Any) -> CheckResult:
        """Returns a result about the subject; `fields` are further fields of CheckResult."""
        return CheckResult(
            id=check,
            component=self.subject.component,
            variant=self.subject.variant,
            verdict=verdict,
            detail=detail,
            **fields,
        )

    @property
    def model(self) -> ModelFile:
        """The ONNX file without its weights; raises like `facts`."""
        model, _, error = self._read
        if model is None:
            raise Unavailable(error or "")
        return model

    @cached_property
    def _read(self) -> tuple[ModelFile | None, GraphFacts | None, str | None]:
        path = self.subject.path
        if not self.subject.is_onnx:
            return None, None, f"{path.name} holds no ONNX protos"
        try:
            model = read_model(path)
            return model, facts_of(model.proto, path), None
        except ModelFileError as e:
            return None, None, without_folder(str(e), path)


def without_folder(text: str, path: Path, root: Path | None = None) -> str:
    """Returns a message that names `path` relative to `root` (its own folder): reports hold no absolute paths.

    A relative folder goes only where the file's name follows: alone, "out" is a word like any other.
    """
    root = root or path.parent
    name = path.relative_to(root)
    folders = {root, root.absolute(), root.resolve()}
    shorter = {str(folder / name): name.as_posix() for folder in folders}
    shorter |= {f"{folder}{os.sep}": "" for folder in folders if folder.is_absolute()}
    for long in sorted(shorter, key=len, reverse=True):  # a relative path is also the end of the absolute one
        text = text.replace(long, shorter[long])
    return text
