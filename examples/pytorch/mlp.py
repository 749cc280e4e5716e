"""A classifier with two layers in PyTorch alone, in one process. mlp_parallel.py is the same over several
ranks, and mlp_distributed.py has torch's own DistributedDataParallel over libnxd.

    python3 mlp.py
"""

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parent.parent))
import mlp_problem as problem  # noqa: E402


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, value in problem.weights().items():
            setattr(self, name, torch.nn.Parameter(torch.from_numpy(value)))

    def forward(self, x):
        h = torch.tanh(torch.nn.functional.linear(x, self.w1, self.b1))
        return torch.nn.functional.linear(h, self.w2, self.b2)


def loss_of(z, labels):
    return torch.nn.functional.cross_entropy(z, labels, reduction="sum") / problem.SAMPLES


def main():
    x, labels = (torch.from_numpy(a) for a in problem.samples())
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=problem.RATE, weight_decay=0.01)
    for i in range(problem.STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(x), labels.long())
        loss.backward()
        optimizer.step()
        print(f"step {i} loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
