"""The classifier of mlp.py as two stages of a pipeline, one on each rank: JAX computes them, and libnxd
runs the schedule and carries activations and their gradients. Losses are those of mlp.py.

    nxdrun -n 2 python3 mlp_pipeline.py
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import nxd.core as nxd

sys.path.append(str(Path(__file__).parent.parent))
import mlp_problem as problem  # noqa: E402
from mlp import adamw  # noqa: E402

MICROBATCHES = 4
ROWS = problem.SAMPLES // MICROBATCHES


@jax.jit
def first_layer(params, x):
    return jnp.tanh(x @ params["w1"].T + params["b1"])


@jax.jit
def loss_of(params, h, labels):
    """The mean over the rows."""
    z = h @ params["w2"].T + params["b2"]
    return -jnp.take_along_axis(jax.nn.log_softmax(z), labels[:, None], axis=1).mean()


class Stage:
    """One layer. The forward task of a microbatch keeps its pullback for the backward task."""

    def __init__(self, first):
        whole, names = problem.weights(), ("w1", "b1") if first else ("w2", "b2")
        self.first, self.params = first, {name: jnp.array(whole[name]) for name in names}
        self.x, self.labels = problem.samples()
        self.pullbacks, self.grads = {}, None

    def forward(self, call, inputs, outputs):
        rows = slice(call.microbatch * ROWS, (call.microbatch + 1) * ROWS)
        if self.first:
            h, pullback = jax.vjp(lambda params: first_layer(params, self.x[rows]), self.params)
            outputs[0][:] = h
            self.pullbacks[call.microbatch] = pullback
            return None
        # A copy: JAX may keep what the library's memory would change.
        h = jnp.array(inputs[0])
        loss, pullback = jax.vjp(lambda params, h: loss_of(params, h, self.labels[rows]),
                                 self.params, h)
        self.pullbacks[call.microbatch] = pullback
        return float(loss)

    def backward(self, call, inputs, grad_outputs, grad_inputs):
        pullback = self.pullbacks.pop(call.microbatch)
        if self.first:
            (grads,) = pullback(jnp.array(grad_outputs[0]))
        else:
            grads, dh = pullback(jnp.float32(call.loss_weight))
            grad_inputs[0][:] = dh
        self.grads = grads if self.grads is None else jax.tree.map(jnp.add, self.grads, grads)


def train(ctx):
    first = ctx.rank == 0
    stage = Stage(first)
    moments = squares = jax.tree.map(jnp.zeros_like, stage.params)
    hidden = [nxd.Value("h", (ROWS, problem.HIDDEN))]
    pipeline = nxd.CallbackPipeline(
        ctx, stage, [[] if first else hidden], [hidden if first else []],
        num_microbatches=MICROBATCHES, broadcast_and_average_loss=True)
    for i in range(problem.STEPS):
        stage.grads = None
        loss = pipeline.run()
        after = {n: adamw(stage.params[n], stage.grads[n], moments[n], squares[n], i + 1.0)
                 for n in stage.params}
        stage.params, moments, squares = ({n: after[n][k] for n in after} for k in range(3))
        ctx.master_print(f"step {i} loss {loss:.6f}")


if __name__ == "__main__":
    with nxd.Context() as context:
        context.init_model_parallel(pipeline_parallel_size=2)
        train(context)
