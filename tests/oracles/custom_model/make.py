#!/usr/bin/env python3
"""Loss trajectory of the model of examples/c/custom_model.c, in double precision with numpy alone.

    python3 make.py > expected.json

Data, weights and hyperparameters follow the same formulas as the example. Gradients are written out
by hand; the update is AdamW with decoupled decay (Loshchilov and Hutter 2019)."""
import json

import numpy as np

SAMPLES, FEATURES, HIDDEN, STEPS = 16, 6, 8, 30
FREQUENCY, DELTA = 1.5, 0.5
RATE, BETA1, BETA2, EPS, DECAY = 0.02, 0.9, 0.999, 1e-8, 0.01


def index(*shape):
    return np.arange(np.prod(shape), dtype=np.float64).reshape(shape)


def snake(z):
    return z + np.sin(FREQUENCY * z) ** 2 / FREQUENCY


def snake_slope(z):
    return 1 + np.sin(2 * FREQUENCY * z)


def huber(error):
    small = np.abs(error) <= DELTA
    return np.where(small, 0.5 * error**2, DELTA * (np.abs(error) - 0.5 * DELTA))


def loss_and_gradients(p, x, target):
    z = x @ p["up.weight"].T + p["up.bias"]
    h = snake(z)
    error = h @ p["down.weight"].T + p["down.bias"] - target
    d_out = np.clip(error, -DELTA, DELTA) / error.size
    d_z = d_out @ p["down.weight"] * snake_slope(z)
    gradients = {
        "down.weight": d_out.T @ h,
        "down.bias": d_out.sum(0),
        "up.weight": d_z.T @ x,
        "up.bias": d_z.sum(0),
    }
    return huber(error).mean(), gradients


def check_gradients(p, x, target):
    """Central differences on a few elements: the formulas above are right."""
    _, gradients = loss_and_gradients(p, x, target)
    for name, value in p.items():
        for i in range(0, value.size, 5):
            step = np.zeros(value.size)
            step[i] = 1e-6
            step = step.reshape(value.shape)
            up, _ = loss_and_gradients({**p, name: value + step}, x, target)
            down, _ = loss_and_gradients({**p, name: value - step}, x, target)
            assert abs((up - down) / 2e-6 - gradients[name].flat[i]) < 1e-7, name


def main():
    x = np.sin(0.37 * index(SAMPLES, FEATURES) + 0.1)
    target = (np.sin(1.3 * index(SAMPLES)) + 0.5 * np.cos(0.4 * index(SAMPLES)))[:, None]
    p = {
        "up.weight": 0.5 * np.sin(0.7 * index(HIDDEN, FEATURES) + 0.3),
        "up.bias": 0.1 * np.cos(index(HIDDEN)),
        "down.weight": 0.4 * np.cos(0.9 * index(1, HIDDEN) + 0.2),
        "down.bias": np.array([0.05]),
    }
    check_gradients(p, x, target)
    first = {name: np.zeros_like(value) for name, value in p.items()}
    second = {name: np.zeros_like(value) for name, value in p.items()}
    losses = []
    for step in range(1, STEPS + 1):
        loss, gradients = loss_and_gradients(p, x, target)
        losses.append(loss)
        for name, g in gradients.items():
            first[name] = BETA1 * first[name] + (1 - BETA1) * g
            second[name] = BETA2 * second[name] + (1 - BETA2) * g * g
            m = first[name] / (1 - BETA1**step)
            v = second[name] / (1 - BETA2**step)
            p[name] = p[name] * (1 - RATE * DECAY) - RATE * m / (np.sqrt(v) + EPS)
    print(json.dumps({"losses": losses}, indent=1))


main()
