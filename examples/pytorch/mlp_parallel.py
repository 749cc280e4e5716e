"""The classifier of mlp.py over several ranks: its layers are split over the tensor-parallel ones, its
samples over the others, which also divide the optimizer's state (ZeRO-1). Losses are those of mlp.py.

    nxdrun -n 2 python3 mlp_parallel.py 2        (two tensor-parallel ranks)
    nxdrun -n 2 python3 mlp_parallel.py 1        (two data-parallel ranks)
    nxdrun -n 4 python3 mlp_parallel.py 2        (two of two)
"""

import sys
from pathlib import Path

import numpy as np
import torch

import nxd.core as nxd

sys.path.append(str(Path(__file__).parent.parent))
import mlp_problem as problem  # noqa: E402
import nxd_torch  # noqa: E402
from mlp import loss_of  # noqa: E402


class Mlp(torch.nn.Module):
    def __init__(self, context):
        super().__init__()
        self.context = context
        rank, ranks = context.parallel_rank("tensor"), context.parallel_size("tensor")
        split = {"w1": 0, "b1": 0, "w2": 1}
        for name, value in problem.weights().items():
            if name in split:
                value = problem.part(value, split[name], rank, ranks)
            setattr(self, name, torch.nn.Parameter(torch.from_numpy(value)))

    def forward(self, x):
        h = torch.tanh(nxd_torch.column_linear(self.context, x, self.w1, self.b1))
        return nxd_torch.row_linear(self.context, h, self.w2, self.b2)


def train(ctx):
    rank, ranks = ctx.parallel_rank("data"), ctx.parallel_size("data")
    x, labels = (torch.from_numpy(problem.part(a, 0, rank, ranks)) for a in problem.samples())
    model = Mlp(ctx)
    # Two buckets, so that there is something to overlap.
    optimizer = nxd_torch.Zero1(ctx, model.named_parameters(), bucket_bytes=1024,
                                learning_rate=problem.RATE, weight_decay=0.01)
    for i in range(problem.STEPS):
        optimizer.zero_grad()
        loss = loss_of(model(x), labels.long())
        loss.backward()
        optimizer.step()
        total = ctx.data_group.all_reduce(np.array([loss.item()]))[0]
        ctx.master_print(f"step {i} loss {total:.6f}")
    ctx.master_print(f"rank 0 keeps {optimizer.optimizer.state_bytes} bytes of state")


if __name__ == "__main__":
    with nxd.Context() as context:
        context.init_model_parallel(
            tensor_parallel_size=int(sys.argv[1]) if len(sys.argv) > 1 else 1)
        train(context)
