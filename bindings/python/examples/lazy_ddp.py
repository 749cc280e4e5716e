"""Data parallelism in its smallest form: a network of two linear layers, of which every rank has a
copy, on samples that the ranks share out anew each epoch. Eagerly on the CPU, or recorded on device
XLA, where a step is one graph:

    NXD_CPU_MODE=1 python3 lazy_ddp.py
    NXD_XLA_BACKEND=replay python3 lazy_ddp.py
"""

import sys

import numpy as np
import nxd
from common import launch
from nxd import ops

SAMPLES, BATCH, EPOCHS = 240, 24, 10


class Net(nxd.Module):
    """(x, target) -> mean squared error of net2(relu(net1(x)))"""

    def __init__(self, ctx):
        super().__init__(ctx)
        # Without tensor parallelism a column-parallel layer is a linear layer.
        for name, outputs in ("net1", 10), ("net2", 5):
            layer = nxd.ColumnParallelLinear(ctx, 10, outputs, name=name, device=nxd.device())
            setattr(self, name, self.add_child(name, layer))

    def forward(self, x, target):
        return ops.mse_loss(self.net2(ops.relu(self.net1(x))), target)


def batches(indices, share):
    """Features are waves of a sample's index, targets a function of the features. The thread of the
    device loader makes them."""
    i = np.arange(10)
    for at in range(0, len(indices) - share + 1, share):
        samples = np.array(indices[at:at + share])[:, None]
        x = np.sin(0.37 * samples * (i + 1) + i).astype("f4")
        target = x[:, :5] * x[:, 1:6] + np.float32(0.5) * x[:, ::2]
        yield nxd.tensor(x), nxd.tensor(target)


def train_epoch(net, sgd, loader):
    """The mean of this rank's losses."""
    losses = []
    for x, target in loader:
        net.zero_grad()
        loss = net(x, target)
        loss.backward()
        sgd.step_without_report()
        nxd.mark_step()
        losses.append(loss.item())  # known by now
    return np.mean(losses)


def main():
    with nxd.Context() as ctx:
        ctx.init_model_parallel()
        group = ctx.parallel_group("data")
        if group.size > BATCH:
            sys.exit(f"lazy_ddp: expected at most {BATCH} ranks, got {group.size}")
        net = Net(ctx)
        sgd = nxd.Sgd(nxd.Ddp.over_module(net, reduce="avg"), learning_rate=0.05)
        for epoch in range(EPOCHS):
            indices = nxd.sample_epoch(SAMPLES, group.size, group.rank, epoch, seed=1,
                                       drop_last=True)
            with nxd.DeviceLoader(batches(indices, BATCH // group.size), nxd.device(),
                                  num_tensors=2) as loader:
                mean = train_epoch(net, sgd, loader)
            mean = group.all_reduce(np.array([mean]), op="avg")[0]
            ctx.master_print(f"epoch {epoch} loss {mean:.6f}")
        m = nxd.device_metrics()
        ctx.master_print(f"steps {m.steps} compiles {m.compiles} loads {m.loads} executions "
                         f"{m.executions} implicit_syncs {m.implicit_syncs} fallbacks {m.fallbacks}")


if __name__ == "__main__":
    if not launch(2):
        main()
