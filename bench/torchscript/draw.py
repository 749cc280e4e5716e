"""Draws modules of PyTorch by a seed, scripted or traced, and trains each for three steps of SGD. Beside each file
lie its sizes (SEED.json) and what it becomes (SEED.npz): losses of the microbatches, and the last parameters and
buffers.
usage: draw.py DIRECTORY COUNT [FIRST_SEED]"""
import json
import pathlib
import random
import sys
import warnings
from typing import Optional, Tuple

import batches
import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class OverTime(nn.Module):
    """A layer that takes features before positions."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.transpose(1, 2)).transpose(1, 2)


class Recurrent(nn.Module):
    def __init__(self, width, kind, layers, both):
        super().__init__()
        self.inner = getattr(nn, kind)(width, width // (2 if both else 1), layers, batch_first=True,
                                       bidirectional=both)

    def forward(self, x):
        return self.inner(x)[0]


class MultiHead(nn.Module):
    def __init__(self, width, heads, causal: bool):
        super().__init__()
        self.inner, self.causal = nn.MultiheadAttention(width, heads, batch_first=True), causal

    def forward(self, x):
        if self.causal:
            mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).triu(1)
            return self.inner(x, x, x, attn_mask=mask, need_weights=False)[0]
        return self.inner(x, x, x, need_weights=False)[0]


class WrittenOut(nn.Module):
    """Attention as models write it themselves."""

    def __init__(self, width, heads: int):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-1, -2)) / float(width // self.heads) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(rows, length, width))


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(functional.glu(self.up(x), -1))


class Einsum(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) * 0.2)
        self.gate = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.einsum("btd,de->bte", x, self.weight) * self.gate.sigmoid()


class InPlace(nn.Module):
    """Writes to its values, and to parts of a tensor of zeros."""

    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        y = self.inner(x) * 1.0
        y += 1.0
        y.mul_(0.7)
        y = functional.relu(y)
        out = torch.zeros_like(y)
        out[:, 0] = y[:, 0] * 0.5
        out[:, 1:] = y[:, 1:]
        return out


class Statistics(nn.Module):
    def forward(self, x):
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-3).sqrt()


class Shifted(nn.Module):
    def forward(self, x):
        return torch.cat([x[:, 1:], x[:, :1]], 1) * 0.5 + torch.stack([x, x.flip(1)], 0).mean(0)


class Resized(nn.Module):
    """Over positions: fewer of them, and as many again."""

    def __init__(self, width, kind: str):
        super().__init__()
        self.inner, self.kind = nn.Conv1d(width, width, 3, padding=1), kind

    def forward(self, x):
        fewer = functional.avg_pool1d(self.inner(x.transpose(1, 2)), 2, ceil_mode=True)
        return functional.interpolate(fewer, size=x.size(1), mode=self.kind).transpose(1, 2)


class StepByStep(nn.Module):
    """A cell in a loop over positions."""

    def __init__(self, width):
        super().__init__()
        self.cell = nn.GRUCell(width, width)

    def forward(self, x):
        h, outputs = torch.zeros_like(x[:, 0]), []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            outputs.append(h)
        return torch.stack(outputs, 1)


class Forked(nn.Module):
    """A task beside the rest, and a submodule behind both."""

    def __init__(self, width):
        super().__init__()
        self.one, self.other = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        task = torch.jit.fork(self.one, x)
        y = self.other(x)
        return self.other(torch.jit.wait(task) + y).tanh()


class Branches(nn.Module):
    """Submodules by names, and one of them under a second name."""

    def __init__(self, width):
        super().__init__()
        self.each = nn.ModuleDict({"a": nn.Linear(width, width), "b": nn.GELU()})
        self.again = self.each["a"]

    def forward(self, x):
        y = self.again(x) * 0.5
        for inner in self.each.values():
            y = y + inner(x)
        return y


class Told(nn.Module):
    """Told by flags and numbers, and may give nothing beside its result."""

    def __init__(self, width):
        super().__init__()
        self.inner, self.other = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, scale: float, times: int, twice: bool) -> Tuple[Tensor, Optional[Tensor]]:
        y = self.inner(x) * scale + times
        more: Optional[Tensor] = None
        if twice:
            more = self.other(y).tanh()
        return y, more


class Telling(nn.Module):
    """Tells its mode, too."""

    def __init__(self, width):
        super().__init__()
        self.first, self.second = Told(width), Told(width)

    def forward(self, x):
        y, more = self.first(x, 0.5, 1, self.training)
        z, none = self.second(y, 1.0 / x.size(1), x.dim(), True)
        if more is not None:
            z = z + more
        if none is not None:
            z = z + none * (2.0 if self.training else 1.0)
        return z


ACTIVATIONS = [nn.GELU, nn.SiLU, nn.ReLU, nn.Tanh, nn.Hardswish, nn.ELU, nn.Mish, nn.Softplus, nn.PReLU]


def block(r, width):
    makers = [
        lambda: nn.Linear(width, width),
        lambda: nn.Sequential(nn.Linear(width, 2 * width), r.choice(ACTIVATIONS)(), nn.Linear(2 * width, width)),
        lambda: OverTime(nn.Conv1d(width, width, 3, padding=1, groups=r.choice([1, 2, width]))),
        lambda: OverTime(nn.BatchNorm1d(width, track_running_stats=r.random() < 0.6)),
        lambda: nn.LayerNorm(width, elementwise_affine=r.random() < 0.6),
        lambda: OverTime(nn.GroupNorm(2, width)),
        lambda: OverTime(nn.ConvTranspose1d(width, width, 3, padding=1, groups=r.choice([1, 2]))),
        lambda: Resized(width, r.choice(["nearest", "linear"])), lambda: StepByStep(width), lambda: Branches(width),
        lambda: Forked(width),
        lambda: Recurrent(width, r.choice(["LSTM", "GRU", "RNN"]), r.choice([1, 2]), r.random() < 0.4),
        lambda: MultiHead(width, r.choice([1, 2, 4]), r.random() < 0.5),
        lambda: nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True,
                                           norm_first=r.random() < 0.5),
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True), 2),
        lambda: Telling(width), lambda: WrittenOut(width, 2), lambda: Gated(width), lambda: Einsum(width), lambda: InPlace(width),
        Statistics, Shifted]
    made = r.choice(makers)()
    return Residual(made) if r.random() < 0.6 else made


class Net(nn.Module):
    def __init__(self, r, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*[block(r, width) for _ in range(r.choice([2, 3, 4, 6]))])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=r.random() < 0.5)
        if r.random() < 0.4:
            self.head.weight = self.embedding.weight

    def forward(self, ids, labels):
        x = self.norm(self.blocks(self.embedding(ids)))
        return functional.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def train(module, seed, sizes):
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=batches.RATE, momentum=batches.MOMENTUM), []
    for step in range(batches.STEPS):
        optimizer.zero_grad()
        for unit in range(batches.UNITS):
            loss = module(*map(torch.from_numpy, batches.of(seed, step, unit, sizes)))
            (loss / batches.UNITS).backward()
            losses.append(loss.item())
        optimizer.step()
    return losses


def write(root, seed):
    r = random.Random(seed)
    torch.manual_seed(seed)
    sizes = {"vocabulary": r.choice([17, 32]), "width": r.choice([8, 12, 16]), "length": r.choice([5, 8])}
    net = Net(r, sizes["vocabulary"], sizes["width"]).train()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    # Behind blocks, and inside of some.
    inside = {"TransformerEncoder": ["layers.0", "layers.0.norm1"], "Telling": ["first", "second.inner"]}
    sizes["cuts"] = [f"blocks.{k}" for k in range(len(net.blocks) - 1)]
    for k, each in enumerate(net.blocks):
        made = getattr(each, "inner", each) if isinstance(each, Residual) else each
        prefix = f"blocks.{k}.inner" if made is not each else f"blocks.{k}"
        sizes["cuts"] += [f"{prefix}.{name}" for name in inside.get(type(made).__name__, [])]
    sizes["blocks"] = [type(getattr(each, "inner", each)).__name__ for each in net.blocks]
    if r.random() < 0.5:
        module = torch.jit.script(net)
    else:
        example = tuple(map(torch.from_numpy, batches.of(seed, 0, 0, sizes)))
        module = torch.jit.trace(net, example, check_trace=False)
    module.save(str(root / f"{seed}.pt"))
    losses = train(module, seed, sizes)
    numpy.savez(root / f"{seed}.npz", losses=losses,
                **{"p:" + name: value.detach().numpy() for name, value in module.named_parameters()},
                **{"b:" + name: value.numpy() for name, value in module.named_buffers()})
    (root / f"{seed}.json").write_text(json.dumps(sizes))


def main():
    warnings.simplefilter("ignore")
    # With AVX-512 PyTorch 1.13 has oneDNN form the gradient of GELU, which is wrong where that of the
    # result is strided.
    torch.backends.mkldnn.set_flags(False)
    root, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    root.mkdir(parents=True, exist_ok=True)
    for seed in range(first, first + count):
        write(root, seed)


main()
