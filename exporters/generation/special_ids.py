"""Do the ids with which a checkpoint generates belong to its vocabulary?

A loop feeds some of them to the model, which has no embedding for an id of another vocabulary. Others are only compared
with what the model chose: transformers goes on without them, and so can everybody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from onnxport.exporters.errors import SourceError

if TYPE_CHECKING:
    from onnxport.exporters.checkpoint import Checkpoint

_END, _PAD, _BEGIN, _START = "eos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id"
_FORCED = ("forced_bos_token_id", "forced_eos_token_id")
_FILE = "generation_config.json"


def check_special_ids(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Returns what a person should know of them, one line each.

    Raises:
        SourceError: generation would feed or force an id that the model does not know.
    """
    model: Any = checkpoint.model
    config = getattr(model, "generation_config", None)
    known = _vocabulary(model)
    if config is None or known is None:
        return ()
    file = _FILE if (checkpoint.folder.path / _FILE).is_file() else "config.json"
    reading = getattr(checkpoint.config, "is_encoder_decoder", False)
    starts = _START if getattr(config, _START, None) is not None else _BEGIN
    notes = []
    for name in (_END, _PAD, _BEGIN, _START, *_FORCED):
        for id in _outside(getattr(config, name, None), known):
            told = f"{name} in {file} is {id}, and the model knows the ids 0 to {known - 1}"
            # A negative padding id is how some checkpoints say that they have none.
            if name in _FORCED or (name == _PAD and id >= 0) or (reading and name == starts):
                raise SourceError(f"{told}: {_USES[name]}; put the model's own {file} into the checkpoint")
            notes.append(f"{told}: {_HARMLESS[name]}")
    return tuple(notes)


_USES = {
    _PAD: "rows of a batch that end early are filled up with it",
    _BEGIN: "the decoder begins with it",
    _START: "the decoder begins with it",
    **dict.fromkeys(_FORCED, "generation is forced to it"),
}
_HARMLESS = {
    _END: "no text ends with it",
    _PAD: "texts of different lengths cannot be padded with it",
    _BEGIN: "no text begins with it",
    _START: "it is not used",
}


def _vocabulary(model: Any) -> int | None:
    """How many ids can be fed to what generates; None: it does not say."""
    part = model.get_decoder() if getattr(model.config, "is_encoder_decoder", False) else model
    embedded = getattr(part, "get_input_embeddings", lambda: None)()
    size = getattr(embedded, "num_embeddings", None)
    return size if isinstance(size, int) else None


def _outside(told: Any, known: int) -> Iterator[int]:
    ids = told if isinstance(told, (list, tuple)) else [told]
    return (id for id in ids if isinstance(id, int) and not 0 <= id < known)
