"""The classifier of mlp.py over several ranks: its layers are split over the tensor-parallel ones, its
samples over the others, which also divide the optimizer's state (ZeRO-1). Losses are those of mlp.py.

    nxdrun -n 2 python3 mlp_parallel.py 2        (two tensor-parallel ranks)
    nxdrun -n 2 python3 mlp_parallel.py 1        (two data-parallel ranks)
    nxdrun -n 4 python3 mlp_parallel.py 2        (two of two)
"""

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import nxd.core as nxd

sys.path.append(str(Path(__file__).parent.parent))
import mlp_problem as problem  # noqa: E402
import nxd_jax  # noqa: E402


def own_weights(tp_rank, tp):
    """The rows of the first layer and the columns of the second that are this rank's."""
    whole = problem.weights()
    split = {"w1": 0, "b1": 0, "w2": 1}
    return {name: problem.part(value, split[name], tp_rank, tp) if name in split else value
            for name, value in whole.items()}


def train(ctx):
    tp, tp_rank = ctx.parallel_size("tensor"), ctx.parallel_rank("tensor")
    dp, dp_rank = ctx.parallel_size("data"), ctx.parallel_rank("data")
    x, labels = (problem.part(a, 0, dp_rank, dp) for a in problem.samples())
    params = own_weights(tp_rank, tp)
    optimizer = nxd_jax.AdamW(ctx, params, learning_rate=problem.RATE, weight_decay=0.01)

    def mlp(params, x):
        h = jnp.tanh(nxd_jax.column_linear(ctx, x, params["w1"], params["b1"]))
        return nxd_jax.row_linear(ctx, h, params["w2"], params["b2"])

    def loss_of(params, x, labels):
        ours = jnp.take_along_axis(jax.nn.log_softmax(mlp(params, x)), labels[:, None], axis=1)
        return -ours.sum() / problem.SAMPLES

    @functools.partial(jax.jit, donate_argnums=0)
    def step(params, x, labels):
        loss, grads = jax.value_and_grad(loss_of)(params, x, labels)
        return loss, optimizer.update(params, grads)

    for i in range(problem.STEPS):
        # No other call of libnxd is made before the step has ended.
        loss, params = jax.block_until_ready(step(params, x, labels))
        total = ctx.data_group.all_reduce(np.array([loss], "f8"))[0]
        ctx.master_print(f"step {i} loss {total:.6f}")
    return optimizer


def main():
    with nxd.Context() as ctx:
        ctx.init_model_parallel(tensor_parallel_size=int(sys.argv[1]) if len(sys.argv) > 1 else 1)
        optimizer = train(ctx)
        ctx.master_print(f"rank 0 keeps {optimizer.optimizer.state_bytes} bytes of state")


if __name__ == "__main__":
    main()
