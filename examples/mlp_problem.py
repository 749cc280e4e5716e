"""The data and first weights of the examples with frameworks: those of examples/c/embed_zero1.c."""

import numpy as np

FEATURES, HIDDEN, CLASSES, SAMPLES, STEPS, RATE = 12, 32, 4, 64, 40, 0.02


def samples():
    """Class c is where a wave of the features is in its c-th quarter."""
    index, i = np.arange(1, SAMPLES + 1)[:, None], np.arange(FEATURES)
    x = np.sin(0.7 * index * (i + 1) + 0.2 * i)
    place = 0.5 + 0.5 * np.sin((x * np.cos(1.1 * i)).sum(1))
    return x.astype("f4"), np.minimum((place * CLASSES).astype("i4"), CLASSES - 1)


def weights():
    """By name, in the order of use."""
    w1 = 0.3 * np.sin(1.7 * np.arange(HIDDEN * FEATURES)).reshape(HIDDEN, FEATURES)
    w2 = 0.3 * np.cos(2.3 * np.arange(CLASSES * HIDDEN)).reshape(CLASSES, HIDDEN)
    return {"w1": w1.astype("f4"), "b1": np.zeros(HIDDEN, "f4"),
            "w2": w2.astype("f4"), "b2": np.zeros(CLASSES, "f4")}


def part(array, dim, rank, ranks):
    """A rank's share along a dimension."""
    return np.ascontiguousarray(np.split(array, ranks, axis=dim)[rank])
