"""modules.json of sentence-transformers: the stages of a sentence embedding model, read without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError

from onnxport.exporters.errors import SourceError
from onnxport.verify.contract import inside

MODULES = "modules.json"


class StageEntry(BaseModel):
    """One stage. `path` is a folder inside the checkpoint, "" the checkpoint itself; `type` a class of the library."""

    model_config = ConfigDict(frozen=True)  # newer versions may add keys

    path: Annotated[str, AfterValidator(lambda path: path and inside(path))]
    type: str

    @property
    def kind(self) -> str:
        """The class without its module: "Pooling"."""
        return self.type.rsplit(".", 1)[-1]


_ENTRIES = TypeAdapter(list[StageEntry])


def read_stage_entries(folder: Path) -> list[StageEntry]:
    """Returns the stages in order; none where the folder has no modules.json.

    Raises:
        SourceError: the file is malformed, or a path leads out of the folder.
    """
    path = folder / MODULES
    if not path.is_file():
        return []
    try:
        return _ENTRIES.validate_python(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as e:
        problem = e.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"]) or "the file"
        raise SourceError(
            f"{MODULES} of {folder.name} is malformed: {where}: {problem['msg']}; expected a list of stages with "
            "path and type, as sentence-transformers writes it"
        ) from e
    except (OSError, ValueError) as e:
        raise SourceError(f"{MODULES} of {folder.name} cannot be read: {e}") from e
