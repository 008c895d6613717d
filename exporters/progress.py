"""What a long call tells its caller while it runs. The library reports; who listens decides what is shown.

with progress.stage("Export") as stage:
    stage.note("nothing to fuse")
    stage.advance(3, 12)
    stage.size(438_047_232)
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Stage(Protocol):
    """One step of the work, while it runs."""

    def note(self, text: str) -> None:
        """Says something a person should know, in one sentence: a step that changed nothing says so."""

    def size(self, size_bytes: int) -> None:
        """Tells the size of what this stage has written, in bytes."""

    def advance(self, done: int, total: int) -> None:
        """Tells how far this stage has come: `done` of `total` equal parts."""


class Progress(Protocol):
    """Receives the stages of one call. A stage ends when its context ends, by an exception too."""

    def stage(self, name: str) -> AbstractContextManager[Stage]:
        """Opens the stage of that name ("Export", "Verify optimized"). Stages do not nest."""


class _SilentStage:
    def note(self, text: str) -> None:
        pass

    def size(self, size_bytes: int) -> None:
        pass

    def advance(self, done: int, total: int) -> None:
        pass


class _Silent:
    def stage(self, name: str) -> AbstractContextManager[Stage]:
        return nullcontext(_SilentStage())


SILENT: Progress = _Silent()
"""Nobody listens."""
