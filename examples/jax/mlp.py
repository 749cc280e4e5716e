"""A classifier with two layers in JAX alone, in one process, with AdamW. mlp_parallel.py is the same over
several ranks.

    python3 mlp.py
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

sys.path.append(str(Path(__file__).parent.parent))
import mlp_problem as problem  # noqa: E402


def mlp(params, x):
    h = jnp.tanh(x @ params["w1"].T + params["b1"])
    return h @ params["w2"].T + params["b2"]


def loss_of(params, x, labels):
    ours = jnp.take_along_axis(jax.nn.log_softmax(mlp(params, x)), labels[:, None], axis=1)
    return -ours.sum() / problem.SAMPLES


def adamw(value, grad, moment, square, count):
    moment = 0.9 * moment + 0.1 * grad
    square = 0.999 * square + 0.001 * grad * grad
    value = value * (1 - problem.RATE * 0.01)
    scaled = moment / (1 - 0.9**count) / (jnp.sqrt(square / (1 - 0.999**count)) + 1e-8)
    return value - problem.RATE * scaled, moment, square


@jax.jit
def step(params, moments, squares, count, x, labels):
    loss, grads = jax.value_and_grad(loss_of)(params, x, labels)
    after = {n: adamw(params[n], grads[n], moments[n], squares[n], count) for n in params}
    return loss, *({n: after[n][i] for n in params} for i in range(3))


def main():
    x, labels = problem.samples()
    params = problem.weights()
    moments = squares = jax.tree.map(jnp.zeros_like, params)
    for i in range(problem.STEPS):
        loss, params, moments, squares = step(params, moments, squares, i + 1.0, x, labels)
        print(f"step {i} loss {loss:.6f}")


if __name__ == "__main__":
    main()
