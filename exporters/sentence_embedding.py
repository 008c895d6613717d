"""From token embeddings to a sentence embedding, as the checkpoint's own sentence-transformers files describe it.

`modules.json` lists the stages: a Transformer, a Pooling, and perhaps Dense and Normalize. What follows the Transformer
is rebuilt here as plain torch, so that it becomes part of the graph; the tests hold it against sentence-transformers.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onnxport.exporters.errors import SourceError
from onnxport.exporters.first_line import first_line
from onnxport.exporters.sentence_modules import MODULES, read_stage_entries

# sentence-transformers before 5 stored one boolean per mode; the embedding concatenates the true ones in this order.
_BOOLEAN_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def _first_real(mask: Tensor) -> Tensor:
    # int32: argmax over int64 is not implemented by every ONNX Runtime build.
    return mask.to(torch.int32).argmax(dim=1)


def _row(tokens: Tensor, index: Tensor) -> Tensor:
    """Takes one position of each row: tokens [batch, sequence, hidden], index [batch] -> [batch, hidden]."""
    return torch.gather(tokens, 1, index.view(-1, 1, 1).expand(-1, 1, tokens.shape[-1])).squeeze(1)


def _cls(tokens: Tensor, mask: Tensor) -> Tensor:
    return _row(tokens, _first_real(mask))


def _last(tokens: Tensor, mask: Tensor) -> Tensor:
    last = mask.shape[1] - 1 - _first_real(mask.flip(1))
    return _row(tokens, last)


def _max(tokens: Tensor, mask: Tensor) -> Tensor:
    return tokens.masked_fill(mask.unsqueeze(-1) == 0, float("-inf")).max(dim=1).values


def _sum_and_count(tokens: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Sums in float32: a sum over hundreds of tokens overflows or loses digits in half precision."""
    weights = weights.unsqueeze(-1).float()
    return (tokens.float() * weights).sum(dim=1), weights.sum(dim=1).clamp(min=1e-9)


def _mean(tokens: Tensor, mask: Tensor) -> Tensor:
    total, count = _sum_and_count(tokens, mask)
    return (total / count).to(tokens.dtype)


def _mean_sqrt(tokens: Tensor, mask: Tensor) -> Tensor:
    total, count = _sum_and_count(tokens, mask)
    return (total / count.sqrt()).to(tokens.dtype)


def _weighted_mean(tokens: Tensor, mask: Tensor) -> Tensor:
    # Weight 1 for the first real token of a row, 2 for the next position, and so on.
    position = torch.arange(1, tokens.shape[1] + 1, device=tokens.device).unsqueeze(0)
    total, count = _sum_and_count(tokens, mask * (position - _first_real(mask).unsqueeze(1)))
    return (total / count).to(tokens.dtype)


POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": _cls,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_sqrt,
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}

# What sentence-transformers' Dense may name as its activation; the checkpoint is data, so nothing else is imported.
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.activation.Sigmoid": nn.Sigmoid,
    "torch.nn.modules.linear.Identity": nn.Identity,
}


class Pooling(nn.Module):
    """tokens [batch, sequence, hidden], mask [batch, sequence] -> [batch, hidden * number of modes]."""

    def __init__(self, modes: tuple[str, ...]) -> None:
        super().__init__()
        self.modes = modes

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        return torch.cat([POOLINGS[mode](tokens, mask) for mode in self.modes], dim=-1)


class Normalize(nn.Module):
    """Scales each embedding to Euclidean length 1."""

    def forward(self, embedding: Tensor) -> Tensor:
        return torch.nn.functional.normalize(embedding, p=2.0, dim=-1)


class SentenceEmbedder(nn.Module):
    """A transformer followed by pooling and the stages after it.

    Returns `last_hidden_state` [batch, sequence, hidden] and `sentence_embedding` [batch, dimension].
    """

    def __init__(self, transformer: nn.Module, pooling: Pooling, after: nn.Sequential) -> None:
        super().__init__()
        self.transformer = transformer
        self.pooling = pooling
        self.after = after

    def forward(self, **inputs: Any) -> dict[str, Tensor]:
        outputs = self.transformer(**inputs, return_dict=True)
        tokens = outputs.last_hidden_state
        mask = inputs.get("attention_mask")
        if mask is None:
            mask = torch.ones(tokens.shape[:2], dtype=torch.int64, device=tokens.device)
        return {**outputs, "sentence_embedding": self.after(self.pooling(tokens, mask))}


@dataclass(frozen=True)
class SentenceStages:
    """What follows the transformer, and what bundle.json says of it."""

    pooling: Pooling
    after: nn.Sequential
    max_length: int | None

    @property
    def pooling_name(self) -> str:
        return "+".join(self.pooling.modes)

    @property
    def normalize(self) -> bool:
        return any(isinstance(stage, Normalize) for stage in self.after)


def read_stages(folder: Path, dtype: torch.dtype) -> SentenceStages:
    """Rebuilds the stages that modules.json lists: Transformer, Pooling, then Dense and Normalize in any number.

    What is rebuilt here is also the reference of the verification, so nothing may be rebuilt by halves: a stage, an
    order or an option that is not known is refused.

    Raises:
        SourceError: a file is missing or malformed, or a stage has no counterpart here.
    """
    pooling: Pooling | None = None
    after: list[nn.Module] = []
    max_length: int | None = None
    entries = read_stage_entries(folder)
    for position, entry in enumerate(entries):
        place = folder / entry.path
        if entry.kind == "Transformer" and position == 0 and not entry.path:
            max_length = _read_json(place / "sentence_bert_config.json", {}).get("max_seq_length")
        elif entry.kind == "Pooling" and position == 1:
            pooling = Pooling(_pooling_modes(_read_json(place / "config.json"), place))
        elif entry.kind == "Dense" and position > 1:
            after.append(_read_dense(place, dtype))
        elif entry.kind == "Normalize" and position > 1:
            _refuse_other_features(_read_json(place / "config.json", {}), place)
            after.append(Normalize())
        elif entry.kind != "Dropout" or position < 2:
            listed = ", ".join(f"{e.kind} in {e.path!r}" for e in entries)
            raise SourceError(
                f"{MODULES} of {folder.name} lists {listed}; onnxport rebuilds a Transformer in the checkpoint's own "
                "folder, then one Pooling, then Dense, Normalize and Dropout. Export the transformer alone with "
                "--task feature-extraction"
            )
    if pooling is None:
        raise SourceError(f"{MODULES} of {folder.name} has no Pooling stage; use --task feature-extraction")
    return SentenceStages(pooling.eval(), nn.Sequential(*after).eval(), max_length)


def _pooling_modes(config: dict[str, Any], place: Path) -> tuple[str, ...]:
    named = config.get("pooling_mode")
    if named is None:
        named = [mode for key, mode in _BOOLEAN_MODES.items() if config.get(key)] or ["mean"]
    modes = (named,) if isinstance(named, str) else tuple(named)
    unknown = [mode for mode in modes if mode not in POOLINGS]
    if unknown:
        raise SourceError(f"{place.name}/config.json asks for pooling {unknown[0]!r}; known: {', '.join(POOLINGS)}")
    if config.get("include_prompt") is False:
        raise SourceError(
            f"{place.name}/config.json leaves the prompt out of pooling (include_prompt false), and a graph is not "
            "told where a prompt ends; use --task feature-extraction"
        )
    return modes


def _refuse_other_features(config: dict[str, Any], place: Path) -> None:
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "sentence_embedding"):
            raise SourceError(
                f"{place.name}/config.json has {key} {config[key]!r}; onnxport rebuilds stages that turn the sentence "
                "embedding into another. Export the transformer alone with --task feature-extraction"
            )


def _read_dense(place: Path, dtype: torch.dtype) -> nn.Module:
    config = _read_json(place / "config.json")
    _refuse_other_features(config, place)
    if config.get("use_residual"):
        raise SourceError(f"{place.name}/config.json has use_residual, which onnxport does not rebuild")
    name = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if name not in ACTIVATIONS:
        raise SourceError(f"{place.name}/config.json names activation {name!r}; known: {', '.join(ACTIVATIONS)}")
    try:
        linear = nn.Linear(config["in_features"], config["out_features"], bias=config.get("bias", True), dtype=dtype)
        linear.load_state_dict({key.removeprefix("linear."): value for key, value in _read_state(place).items()})
    except (KeyError, TypeError, RuntimeError) as e:
        raise SourceError(
            f"{place.name}/config.json and its weights do not fit together: {type(e).__name__}: {e}"
        ) from e
    return nn.Sequential(linear, ACTIVATIONS[name]())


def _read_state(place: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if (place / "model.safetensors").is_file():
            state: dict[str, Tensor] = load_file(place / "model.safetensors")
        else:
            state = torch.load(place / "pytorch_model.bin", map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as e:
        raise SourceError(f"cannot read the weights of {place.name}: {type(e).__name__}: {first_line(e)}") from e
    return state


def _read_json(path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    if default is not None and not path.is_file():
        return default
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise SourceError(f"cannot read {path.parent.name}/{path.name}: {e}") from e
    if not isinstance(content, dict):
        raise SourceError(f"{path.parent.name}/{path.name} holds a {type(content).__name__}; expected an object")
    return content
