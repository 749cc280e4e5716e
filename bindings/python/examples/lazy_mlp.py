"""An MLP of three layers that learns ten labels by SGD, made of operators alone. One switch runs it
eagerly on the CPU or recorded on device XLA:

    NXD_CPU_MODE=1 python3 lazy_mlp.py
    NXD_XLA_BACKEND=replay python3 lazy_mlp.py

It prints the losses, and what the device has done. The learning rate falls at every step, which
compiles nothing.
"""

import itertools

import numpy as np
import nxd
from nxd import ops

SIZES, ROWS, STEPS = (784, 64, 64, 10), 8, 40


def random_values():
    """In [-1, 1), the same on every machine and in every language."""
    state = 1
    while True:
        state = (state * 1664525 + 1013904223) % 2**32
        yield (state >> 8) / 2**23 - 1


def random_matrix(values, rows, cols, scale):
    taken = np.fromiter(itertools.islice(values, rows * cols), "f4")
    return nxd.tensor((taken * np.float32(scale)).reshape(rows, cols)).to_device(nxd.device())


def forward(weights, x, labels):
    *hidden, last = weights
    for weight in hidden:
        x = ops.relu(ops.linear(x, weight))
    return ops.cross_entropy_loss(ops.linear(x, last), labels)


def update(weight, rate):
    """weight -= rate * gradient, outside of the graph that backward walks."""
    ops.sub_(weight.detach(), weight.grad, alpha=rate, overload="Tensor")
    weight.grad = None


def main():
    values = random_values()
    weights = [random_matrix(values, rows, cols, 0.1) for cols, rows in zip(SIZES, SIZES[1:])]
    for weight in weights:
        weight.requires_grad = True
    x = random_matrix(values, ROWS, SIZES[0], 1)
    labels = nxd.tensor(np.arange(ROWS)).to_device(nxd.device())
    for step in range(STEPS):
        loss = forward(weights, x, labels)
        loss.backward()
        for weight in weights:
            update(weight, 0.05 / (1 + step))
        nxd.mark_step()
        print(f"step {step} loss {loss.item():.7f}")  # known by now: no sync
    m = nxd.device_metrics()
    print(f"steps {m.steps} compiles {m.compiles} loads {m.loads} "
          f"executions {m.executions} implicit_syncs {m.implicit_syncs} fallbacks {m.fallbacks}")


if __name__ == "__main__":
    main()
