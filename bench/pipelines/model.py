"""Models that are drawn by a seed, as modules of PyTorch to be scripted. Their forwards write to buffers in place, give
them other tensors, read some that nothing writes to, and count."""
import random
from typing import List

import torch
from torch import Tensor, nn
from torch.nn import functional

from batches import VOCABULARY

WIDTH = 8


class Residual(nn.Module):
    def __init__(self, activation: str):
        super().__init__()
        self.inner, self.activation = nn.Linear(WIDTH, WIDTH), activation

    def forward(self, x):
        y = self.inner(x)
        if self.activation == "tanh":
            y = torch.tanh(y)
        elif self.activation == "relu":
            y = functional.relu(y)
        return x + y


class BatchNorm(nn.Module):
    def __init__(self, affine: bool):
        super().__init__()
        self.inner = nn.BatchNorm1d(WIDTH, affine=affine, momentum=0.3)

    def forward(self, x):
        return self.inner(x.transpose(1, 2)).transpose(1, 2)


class InPlace(nn.Module):
    """Writes to its buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.mean.mul_(0.5).add_(x.detach().mean([0, 1]), alpha=0.5)
            self.calls.add_(1)
        return x + 0.3 * self.mean


class Assigned(nn.Module):
    """Gives its buffer another tensor."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x):
        if self.training:
            self.mean = self.mean * 0.5 + x.detach().mean([0, 1])
        return x * (1.0 + 0.1 * torch.tanh(self.mean))


class Scaled(nn.Module):
    """Reads a buffer that nothing writes to."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.linspace(0.5, 1.5, WIDTH))
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * self.scale * self.weight


class Counting(nn.Module):
    """Has a count and a list that are no buffers."""

    def __init__(self):
        super().__init__()
        self.count: int = 0
        self.history: List[float] = [1.0]
        self.inner = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        if self.training:
            self.count += 1
            self.history.append(1.0 + 0.1 * float(self.count % 3))
        return self.inner(x) * self.history[-1]


class SharedMean(nn.Module):
    """Two modules have one buffer: the second reads what the first has written."""

    def __init__(self):
        super().__init__()
        self.first, self.second = InPlace(), Reader()

    def forward(self, x):
        return self.second(self.first(x))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x):
        return x * (1.0 + 0.2 * torch.tanh(self.mean))


class Deep(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x):
        return self.blocks(x) * 0.9


def block(r, inner=False):
    kinds = {"residual": lambda: Residual(r.choice(["tanh", "relu", ""])), "norm": lambda: nn.LayerNorm(WIDTH),
             "batch": lambda: BatchNorm(r.random() < 0.5), "in place": InPlace, "assigned": Assigned, "scaled": Scaled,
             "shared": SharedMean}
    if not inner:
        kinds.update({"dropout": lambda: nn.Dropout(0.0), "counting": Counting,
                      "deep": lambda: Deep([block(r, True) for _ in range(r.choice([1, 2]))])})
    return kinds[r.choice(["residual", "residual", *kinds])]()


class Net(nn.Module):
    """Gives a loss and the logits. Parts of it are not used."""

    def __init__(self, seed):
        super().__init__()
        r = random.Random(seed)
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, sparse=r.random() < 0.3)
        self.blocks = nn.ModuleList([block(r) for _ in range(r.choice([3, 4, 5, 6]))])
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if r.random() < 0.4:
            self.head.weight = self.embedding.weight
        self.unused, self.spare = nn.Linear(3, 2), nn.BatchNorm1d(3, affine=False)
        self.spare.running_mean.fill_(5)
        self.register_buffer("gain", torch.full((1,), 1.1))
        self.shared, self.has_shared = Residual("tanh"), r.random() < 0.4

    def forward(self, ids: Tensor, labels: Tensor):
        x = self.embedding(ids)
        if self.has_shared:
            x = self.shared(x)
        for each in self.blocks:
            x = each(x)
        if self.has_shared:
            x = self.shared(x)
        logits = self.head(x) * self.gain
        return functional.cross_entropy(logits.view(-1, 11), labels.view(-1), ignore_index=-100), logits


def make(seed, dtype, frozen):
    """The net in a dtype, of which so many parameters are frozen."""
    net = Net(seed).to(dtype)
    for module in net.modules():
        if isinstance(module, SharedMean):
            module.second.mean = module.first.mean
    names = [name for name, _ in net.named_parameters()]
    for name in random.Random(seed).sample(names, frozen):
        net.get_parameter(name).requires_grad_(False)
    return net
