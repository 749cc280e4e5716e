"""A model whose forward is Python, over layers of the library and a parameter and an activation of
its own, in training: each rank has a copy, and samples are shared out anew each epoch.

    nxdrun -n 2 python3 custom_model.py
"""

import sys

import numpy as np
import nxd
from nxd import ops

SAMPLES, BATCH, EPOCHS = 240, 24, 10


def swish_forward(call, x):
    s = ops.sigmoid(x)
    call.save(x, s)
    return x * s


def swish_backward(call, grad):
    x, s = call.saved(0), call.saved(1)
    return grad * (s + x * s * (1 - s))


class Net(nxd.Module):
    """(x, target) -> mean squared error of net2(swish(net1(x)) * gain)"""

    def __init__(self, ctx):
        super().__init__(ctx)
        self.net1 = self.add_child("net1", nxd.ColumnParallelLinear(ctx, 10, 16, name="net1"))
        self.net2 = self.add_child("net2", nxd.ColumnParallelLinear(ctx, 16, 5, name="net2"))
        self.gain = self.add_parameter("gain", (16,), init="constant", init_a=1.0)
        self.swish = nxd.Function("example::swish", swish_forward, swish_backward)

    def forward(self, x, target):
        hidden = self.swish(self.net1(x)) * self.gain.tensor
        return ops.mse_loss(self.net2(hidden), target)


def make_batch(indices):
    """Features are waves of a sample's index, targets a function of the features."""
    i = np.arange(10)
    x = np.sin(0.37 * np.array(indices)[:, None] * (i + 1) + i)
    target = x[:, :5] * x[:, 1:6] + 0.5 * x[:, 0:10:2]
    return nxd.tensor(x.astype("f4")), nxd.tensor(target.astype("f4"))


def main():
    with nxd.Context() as ctx:
        ctx.init_model_parallel()
        group = ctx.parallel_group("data")
        if group.size > BATCH:
            sys.exit(f"custom_model: expected at most {BATCH} ranks, got {group.size}")
        net = Net(ctx)
        ddp = nxd.Ddp.over_module(net, reduce="avg")
        adamw = nxd.AdamW(ddp, learning_rate=0.01)
        share = BATCH // group.size
        for epoch in range(EPOCHS):
            indices = nxd.sample_epoch(SAMPLES, group.size, group.rank, epoch, seed=1)
            losses = []
            for at in range(0, len(indices), share):
                net.zero_grad()
                loss = net(*make_batch(indices[at:at + share]))
                loss.backward()
                adamw.step()
                losses.append(loss.item())
            mean = group.all_reduce(np.array([np.mean(losses)]), op="avg")[0]
            ctx.master_print(f"epoch {epoch} loss {mean:.6f}")


if __name__ == "__main__":
    main()
