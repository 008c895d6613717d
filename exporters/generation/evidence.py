"""The generation that a bundle is held against: recorded at export, stored in the bundle, read again by `verify`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from onnxport.exporters.errors import SignatureError
from onnxport.exporters.generation.generation import CASE, Generation, load_generation, save_generation
from onnxport.exporters.manifest import GenerationRecord, Verification
from onnxport.verify.errors import VerificationError
from onnxport.verify.inspection import without_folder
from onnxport.verify.report import CheckResult

FILE = "verification/generation.safetensors"


@dataclass(frozen=True)
class GenerationEvidence:
    """What is known of the model's own generation; both are empty where its task does not generate.

    Attributes:
        generation: what it generated; None: nothing to hold a bundle against.
        checks: why there is nothing.
    """

    generation: Generation | None = None
    checks: tuple[CheckResult, ...] = ()

    @property
    def record(self) -> GenerationRecord | None:
        """What the manifest says of it."""
        return None if self.generation is None else GenerationRecord(loop=self.generation.loop, file=FILE)


def generates(suite: str) -> bool:
    """Whether a suite compares generated tokens."""
    return suite != "quick"


def record_evidence(record: Callable[[], Generation] | None, suite: str) -> GenerationEvidence:
    """Runs the model's own generation, where its task generates and the suite compares it."""
    if record is None or not generates(suite):
        return GenerationEvidence()
    try:
        return GenerationEvidence(record())
    except SignatureError as e:
        detail = f"nothing was generated: {e}"
        return GenerationEvidence(checks=(CheckResult(id="outputs.match", case=CASE, verdict="skip", detail=detail),))


def store_evidence(evidence: GenerationEvidence, root: Path) -> None:
    """Writes it into the bundle that is built at `root`."""
    if evidence.generation is not None:
        save_generation(root / FILE, evidence.generation)


def stored_evidence(root: Path, verification: Verification) -> GenerationEvidence:
    """Returns what a bundle holds. A damaged file is a failed check."""
    record = verification.generation
    if record is None:
        return GenerationEvidence()
    path = root / record.file
    try:
        return GenerationEvidence(load_generation(path, record.loop))
    except VerificationError as e:
        detail = without_folder(str(e), path, root)
        return GenerationEvidence(checks=(CheckResult(id="golden.match", case=CASE, verdict="fail", detail=detail),))
