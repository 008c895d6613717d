"""Factories of plain modules, as a user would write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def _seeded(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
    return module


class BagClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(50, 16, mode="mean")
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(16, 4)

    def forward(self, input_ids: Tensor, offsets: Tensor) -> Tensor:
        return self.head(self.dropout(self.bag(input_ids, offsets)))


def bag_classifier() -> object:
    example = {"input_ids": torch.randint(0, 50, (13,)), "offsets": torch.tensor([0, 4, 9])}
    return _seeded(BagClassifier()), example, {"input_ids": ["num_tokens"], "offsets": ["bags"]}


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        features = torch.relu(self.norm(self.conv(pixels)))
        return self.head(features.mean(dim=(2, 3))), features


def conv_net() -> object:
    return _seeded(ConvNet()), torch.randn(2, 3, 16, 20)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 3)

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        states, _ = self.lstm(features)
        return {"tags": self.head(states)}


def tagger() -> object:
    def example(batch: int, steps: int) -> dict[str, Tensor]:
        return {"features": torch.randn(batch, steps, 6)}

    return _seeded(Tagger()), example, {"features": ["batch", "steps", 6]}


class Gate(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x - 1


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.gate = Gate()

    def forward(self, x: Tensor) -> Tensor:
        return self.gate(self.layer(x))


def gated() -> object:
    return _seeded(Gated()), {"x": torch.randn(3, 4)}, {"x": ["batch", 4]}


class Swapped(nn.Module):
    """forward's parameters in an order that binding by position would get wrong."""

    def forward(self, b: Tensor, a: Tensor) -> Tensor:
        return a - 2 * b


def swapped() -> object:
    return Swapped(), {"a": torch.randn(2, 3), "b": torch.randn(2, 3)}, {"a": ["batch", 3], "b": ["batch", 3]}


class OnlySixteen(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(4, 4) + 1


def only_sixteen() -> object:
    return OnlySixteen(), {"x": torch.randn(16)}, {"x": ["n"]}


def raises() -> object:
    raise ValueError("no weights on this machine")


def returns_a_module() -> object:
    return ConvNet()


not_callable = 3
