"""The MLP of bench_mlp_layers with torch's DTensor: the first linear layer split by columns, the second
by rows. Run by scripts/bench_mlp_layers, with RANK and WORLD_SIZE set by the launcher."""
import collections
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)

from mlp_inputs import parse_arguments, report, whole_arrays

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def make_mlp(arguments, first, second):
    linear, mid = torch.nn.Linear, arguments.intermediate
    mlp = torch.nn.Sequential(collections.OrderedDict(
        first=linear(arguments.hidden, mid, bias=False),
        second=linear(mid, arguments.hidden, bias=False)))
    with torch.no_grad():
        mlp.first.weight.copy_(torch.from_numpy(first))
        mlp.second.weight.copy_(torch.from_numpy(second))
    return parallelize_module(mlp, init_device_mesh("cpu", (SIZE,)),
                              {"first": ColwiseParallel(), "second": RowwiseParallel()})


def main():
    arguments = parse_arguments()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo", init_method=f"file://{arguments.init}", rank=RANK,
                            world_size=SIZE)
    x, first, second, dy = whole_arrays(arguments)
    mlp = make_mlp(arguments, first, second)
    x, dy = torch.from_numpy(x), torch.from_numpy(dy)

    def step():
        mlp.zero_grad()
        leaf = x.detach().requires_grad_()
        y = mlp(leaf)
        y.backward(dy)
        grads = [leaf.grad] + [p.grad.to_local() for p in mlp.parameters()]
        return [t.detach() for t in (y, *grads)]

    report(arguments, RANK, torch.__version__, step, dist.barrier)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
