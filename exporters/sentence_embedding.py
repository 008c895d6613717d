"""From token embeddings to a sentence embedding, as the checkpoint's own sentence-transformers files describe it.

`modules.json` lists the stages: a Transformer, a Pooling, and perhaps Dense and Normalize. Everything after the
Transformer is rebuilt here as plain torch, so that it becomes part of the graph.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onnxport.exporters.errors import SourceError

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
    """Reads modules.json and the folders it names.

    Raises:
        SourceError: a file is missing or malformed, or a stage is of a kind that has no counterpart here.
    """
    pooling: Pooling | None = None
    after: list[nn.Module] = []
    max_length: int | None = None
    for entry in _read_json(folder / "modules.json"):
        kind = str(entry["type"]).rsplit(".", 1)[-1]
        place = folder / entry["path"]
        if kind == "Transformer":
            settings = folder / entry["path"] / "sentence_bert_config.json"
            if settings.is_file():
                max_length = _read_json(settings).get("max_seq_length")
        elif kind == "Pooling":
            pooling = Pooling(_pooling_modes(_read_json(place / "config.json"), place))
        elif kind == "Dense":
            after.append(_read_dense(place, dtype))
        elif kind == "Normalize":
            after.append(Normalize())
        elif kind != "Dropout":
            raise SourceError(
                f"modules.json of {folder.name} has a stage {entry['type']!r}, which onnxport cannot rebuild (it knows "
                "Transformer, Pooling, Dense, Normalize, Dropout); export the transformer alone with "
                "--task feature-extraction"
            )
    if pooling is None:
        raise SourceError(f"modules.json of {folder.name} has no Pooling stage; use --task feature-extraction")
    return SentenceStages(pooling.eval(), nn.Sequential(*after).eval(), max_length)


def _pooling_modes(config: dict[str, Any], place: Path) -> tuple[str, ...]:
    named = config.get("pooling_mode")
    if named is None:
        named = [mode for key, mode in _BOOLEAN_MODES.items() if config.get(key)] or ["mean"]
    modes = (named,) if isinstance(named, str) else tuple(named)
    unknown = [mode for mode in modes if mode not in POOLINGS]
    if unknown:
        raise SourceError(f"{place.name}/config.json asks for pooling {unknown[0]!r}; known: {', '.join(POOLINGS)}")
    return modes


def _read_dense(place: Path, dtype: torch.dtype) -> nn.Module:
    config = _read_json(place / "config.json")
    name = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if name not in ACTIVATIONS:
        raise SourceError(f"{place.name}/config.json names activation {name!r}; known: {', '.join(ACTIVATIONS)}")
    linear = nn.Linear(config["in_features"], config["out_features"], bias=config.get("bias", True), dtype=dtype)
    state = _read_state(place)
    linear.load_state_dict({key.removeprefix("linear."): value.to(dtype) for key, value in state.items()})
    return nn.Sequential(linear, ACTIVATIONS[name]())


def _read_state(place: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if (place / "model.safetensors").is_file():
            state: dict[str, Tensor] = load_file(place / "model.safetensors")
        else:
            state = torch.load(place / "pytorch_model.bin", map_location="cpu", weights_only=True)
        return state
    except (OSError, SafetensorError, RuntimeError, EOFError) as e:
        raise SourceError(f"cannot read the weights of {place.name}: {e}") from e


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise SourceError(f"cannot read {path.parent.name}/{path.name}: {e}") from e
