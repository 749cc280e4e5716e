"""The classifier of mlp.py under torch's own DistributedDataParallel, with libnxd as its backend.

    nxdrun -n 2 python3 mlp_distributed.py /tmp/a_new_file       (where torch's ranks meet)
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).parent.parent))
import mlp_problem as problem  # noqa: E402
import nxd_backend  # noqa: E402
from mlp import Mlp, loss_of  # noqa: E402


def main():
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nxd", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=ranks)
    x, labels = (torch.from_numpy(problem.part(a, 0, rank, ranks)) for a in problem.samples())
    model = torch.nn.parallel.DistributedDataParallel(Mlp(), bucket_cap_mb=0.001)
    optimizer = torch.optim.AdamW(model.parameters(), lr=problem.RATE, weight_decay=0.01)
    for i in range(problem.STEPS):
        optimizer.zero_grad(set_to_none=True)
        # DistributedDataParallel averages over ranks.
        loss = ranks * loss_of(model(x), labels.long())
        loss.backward()
        optimizer.step()
        total = loss.detach() / ranks
        dist.all_reduce(total)
        if rank == 0:
            print(f"step {i} loss {total.item():.6f}", flush=True)
    dist.destroy_process_group()
    nxd_backend.finalize()


if __name__ == "__main__":
    main()
