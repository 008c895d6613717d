"""Factories of plain modules, as a user would write them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
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


class FrozenIds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table.weight[torch.tensor(ids.tolist())]


def frozen_ids() -> object:
    return _seeded(FrozenIds()), {"ids": torch.tensor([3, 1, 4])}


class FrozenNumpy(FrozenIds):
    def forward(self, ids: Tensor) -> Tensor:
        return self.table.weight[torch.from_numpy(ids.numpy())]


def frozen_numpy() -> object:
    return _seeded(FrozenNumpy()), {"ids": torch.tensor([3, 1, 4])}


class FrozenScale(nn.Module):
    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        return x * torch.tensor(steps.tolist()).sum()


def frozen_scale() -> object:
    example = {"x": torch.randn(3, 4), "steps": torch.tensor([2, 1])}
    return FrozenScale(), example, {"x": ["batch", 4]}


class BranchEqual(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 100 if torch.equal(x, torch.zeros(3, 4)) else x


class BranchAllclose(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 100 if torch.allclose(x, torch.zeros(3, 4)) else x


class BranchNonzero(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 100 if len(x.nonzero()) == 0 else x


class BranchItem(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x.max().item()


class BranchLoop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(4)
        for _ in range(int(x.abs().sum())):
            total = total + 1
        return x + total


def _of_three_by_four(module: nn.Module) -> object:
    return module, {"x": torch.randn(3, 4)}, {"x": ["batch", 4] if isinstance(module, BranchItem) else [3, 4]}


def branch_equal() -> object:
    return _of_three_by_four(BranchEqual())


def branch_allclose() -> object:
    return _of_three_by_four(BranchAllclose())


def branch_nonzero() -> object:
    return _of_three_by_four(BranchNonzero())


def branch_item() -> object:
    return _of_three_by_four(BranchItem())


def branch_loop() -> object:
    return _of_three_by_four(BranchLoop())


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.add_(1) * 2


def in_place() -> object:
    return InPlace(), {"x": torch.randn(3, 4)}, {"x": ["batch", 4]}


class ClampsItsInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.data.clamp_(min=0)
        return x * 2


def clamps_its_input() -> object:
    return ClampsItsInput(), {"x": torch.randn(3, 4)}, {"x": ["batch", 4]}


class Scaled(nn.Module):
    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return x * scale


def scalar_input() -> object:
    return Scaled(), {"x": torch.randn(3, 4), "scale": torch.tensor(2.5)}, {"x": ["batch", 4]}


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.weight).abs()


def complex_parameter() -> object:
    return Complex(), {"x": torch.randn(3, 4)}


def exits() -> object:
    raise SystemExit(0)


class PositionalOnly(nn.Module):
    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0]


def positional_only() -> object:
    return PositionalOnly(), (torch.randn(3, 4),)


def odd_axes() -> object:
    return Doubled(), {"x": torch.randn(3, 4)}, {"x": [None, 4]}


def dict_axes() -> object:
    return Doubled(), {"x": torch.randn(3, 4)}, {"x": {0: "batch"}}


class Random(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


def random_output() -> object:
    return Random(), {"x": torch.randn(3, 4)}


class Lambda(nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> object:
        return self.function(x)


def no_output() -> object:
    return Lambda(lambda x: ()), {"x": torch.randn(3, 4)}


def half_output() -> object:
    return Lambda(lambda x: x.to(torch.bfloat16)), {"x": torch.randn(3, 4)}


def output_named_like_input() -> object:
    return Lambda(lambda x: {"x": x * 2}), {"x": torch.randn(3, 4)}


def one_name_twice() -> object:
    return Lambda(lambda x: {"a": (x, x * 2), "a.0": x * 3}), {"x": torch.randn(3, 4)}


def double() -> object:
    return nn.Linear(4, 4).double(), {"input": torch.randn(3, 4)}


class TrainsItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        result = self.dropout(x)
        self.dropout.train()
        return result


def trains_itself() -> object:
    return TrainsItself(), {"x": torch.randn(3, 4)}


class HiddenRead(nn.Module):
    """Reads a tensor where no tracer looks."""

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        return x * float(bytes(steps.detach().untyped_storage())[0])


def hidden_read() -> object:
    return HiddenRead(), {"x": torch.randn(3, 4), "steps": torch.tensor([7, 2, 5])}, {"x": ["batch", 4]}


class BufferAsNumber(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("power", torch.tensor(3))

    def forward(self, x: Tensor) -> Tensor:
        return x ** int(self.power)


def buffer_as_number() -> object:
    return BufferAsNumber(), {"x": torch.randn(3, 4)}, {"x": ["batch", 4]}


class Product(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b


def ones() -> object:
    return Product(), (torch.randn(1, 1), torch.randn(1, 1))


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def six_axes() -> object:
    def example(**sizes: int) -> dict[str, Tensor]:
        return {"x": torch.randn(*sizes.values())}

    return Doubled(), example, {"x": list("abcdef")}


def raises() -> object:
    raise ValueError("no weights on this machine")


def returns_a_module() -> object:
    return ConvNet()


not_callable = 3


class SwitchesItself(nn.Module):
    """Takes another algorithm for good once it has seen a short input, as BigBird does."""

    def __init__(self) -> None:
        super().__init__()
        self.algorithm = "sparse"

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] < 16:
            self.algorithm = "full"
        return x * (2.0 if self.algorithm == "full" else 3.0)


def switches_itself() -> tuple[nn.Module, dict[str, Tensor]]:
    return SwitchesItself(), {"x": torch.randn(2, 5)}


class FirstHalf(nn.Module):
    """Counts with a Python number: a trace keeps that of the example, torch.export the formula."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, : math.ceil(x.shape[1] * 0.5)] * 2.0


def first_half() -> tuple[nn.Module, dict[str, Tensor]]:
    return FirstHalf(), {"x": torch.randn(3, 8)}


class DrawsLength(nn.Module):
    """Unrolls as many steps as the example is long: no engine follows it to other lengths."""

    def forward(self, x: Tensor) -> Tensor:
        total = x[:, 0]
        for i in range(1, int(x.shape[1] * 1.0)):
            total = torch.tanh(total + x[:, i])
        return total


def unrolled() -> tuple[nn.Module, dict[str, Tensor]]:
    return DrawsLength(), {"x": torch.randn(3, 8)}


class Interleaved(nn.Module):
    """Rotary embeddings with interleaved halves, as Cohere, GLM and Ernie have them: two operators on dimension -1."""

    def forward(self, hidden_states: Tensor, angles: Tensor) -> Tensor:
        cosine, sine = (f(angles).repeat_interleave(2, dim=-1) for f in (torch.cos, torch.sin))
        turned = torch.stack((-hidden_states[..., 1::2], hidden_states[..., 0::2]), dim=-1).flatten(-2)
        return torch.cat((hidden_states * cosine + turned * sine, turned), dim=-1)


def interleaved() -> tuple[nn.Module, dict[str, Tensor], dict[str, tuple[str | int, ...]]]:
    example = {"hidden_states": torch.randn(2, 4, 5, 6), "angles": torch.randn(2, 4, 5, 3)}
    return Interleaved(), example, {"hidden_states": ("batch", 4, "sequence", 6), "angles": ("batch", 4, "sequence", 3)}


class Expm1(nn.Module):
    """The activation of Apertus."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        return torch.expm1(hidden_states)


def expm1() -> tuple[nn.Module, dict[str, Tensor], dict[str, tuple[str | int, ...]]]:
    return Expm1(), {"hidden_states": torch.randn(3, 4)}, {"hidden_states": ("batch", 4)}


class Resized(nn.Module):
    """Resizes images to 12 x 20 with antialiasing."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode

    def forward(self, pixel_values: Tensor) -> Tensor:
        return F.interpolate(pixel_values, size=(12, 20), mode=self.mode, antialias=True)


def enlarged() -> tuple[nn.Module, dict[str, Tensor], dict[str, tuple[str | int, ...]]]:
    return Resized("bicubic"), {"pixel_values": torch.randn(2, 3, 12, 9)}, {"pixel_values": ("batch", 3, 12, 9)}


def enlarged_linearly() -> tuple[nn.Module, dict[str, Tensor], dict[str, tuple[str | int, ...]]]:
    return Resized("bilinear"), {"pixel_values": torch.randn(2, 3, 5, 9)}, {"pixel_values": ("batch", 3, 5, 9)}


def shrunk() -> tuple[nn.Module, dict[str, Tensor], dict[str, tuple[str | int, ...]]]:
    return Resized("bicubic"), {"pixel_values": torch.randn(2, 3, 12, 33)}, {"pixel_values": ("batch", 3, 12, 33)}


def resized() -> tuple[nn.Module, dict[str, Tensor], dict[str, tuple[str | int, ...]]]:
    axes = {"pixel_values": ("batch", 3, "height", "width")}
    return Resized("bilinear"), {"pixel_values": torch.randn(2, 3, 9, 33)}, axes


class PyramidPooling(nn.Module):
    """Averages an image in 1, 4, 9 and 12 windows, as UperNet and BEiT do: sizes that divide its own, or do not."""

    def forward(self, pixel_values: Tensor) -> Tensor:
        image = pixel_values.flatten(2).reshape(pixel_values.shape)
        pooled = (F.adaptive_avg_pool2d(image, size).flatten(2) for size in (1, 2, 3, (4, 3)))
        return torch.cat(tuple(pooled), dim=-1)


def pyramid_pooling() -> tuple[nn.Module, dict[str, Tensor], dict[str, tuple[str | int, ...]]]:
    return PyramidPooling(), {"pixel_values": torch.randn(2, 3, 16, 9)}, {"pixel_values": ("batch", 3, 16, 9)}


class ResizedByFactor(nn.Module):
    """Resizes by a factor that gives no whole number."""

    def forward(self, pixel_values: Tensor) -> Tensor:
        return F.interpolate(pixel_values, scale_factor=1.3, mode="bicubic", antialias=True)


def resized_by_factor() -> tuple[nn.Module, dict[str, Tensor], dict[str, tuple[str | int, ...]]]:
    return ResizedByFactor(), {"pixel_values": torch.randn(2, 3, 12, 9)}, {"pixel_values": ("batch", 3, 12, 9)}


class Twins(nn.Module):
    """Two outputs of one shape: which of the graph's is which of the module's, shapes do not tell."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.layer(x)
        return features.sin(), features.cos()


def twins() -> object:
    return _seeded(Twins()), torch.randn(2, 4)
