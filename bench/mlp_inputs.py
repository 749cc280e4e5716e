"""Parts that the MLPs written in Python share: the values of bench_mlp_layers, and how its time and its
results are told."""
import argparse
import json
import time

import numpy as np

RANKS = 2


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--intermediate", type=int, default=1408)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--warm-rounds", type=int, default=3)
    parser.add_argument("--init", required=True, help="file through which ranks meet")
    return parser.parse_args()


def values(rows, cols, which):
    """The values that bench_mlp_layers gives its array of this number."""
    k = np.arange(rows * cols, dtype=np.int64)
    array = ((k * 7 + which) % 31).astype(np.float32) / np.float32(31) - np.float32(0.5)
    return array.reshape(rows, cols)


def whole_arrays(a):
    """x, both weights and the gradient of y. Each rank's part of a weight has the same values."""
    part = a.intermediate // RANKS
    first = np.concatenate([values(part, a.hidden, 1)] * RANKS, 0)
    second = np.concatenate([values(a.hidden, part, 3)] * RANKS, 1)
    return values(a.tokens, a.hidden, 0), first, second, values(a.tokens, a.hidden, 9)


def norm(array):
    return float(np.sqrt((np.asarray(array, dtype=np.float64) ** 2).sum()))


def report(arguments, rank, version, step, barrier):
    """Times rounds of step(), which gives y and the gradients of x and of this rank's parts of the
    weights once they are there. Prints a line of JSON on rank 0."""
    taken, results = [], None
    for index in range(arguments.warm_rounds + arguments.rounds):
        barrier()
        start = time.perf_counter()
        results = step()
        if index >= arguments.warm_rounds:
            taken.append((time.perf_counter() - start) * 1e3)
    norms = [norm(array) for array in results]
    if rank == 0:
        print(json.dumps({"version": version, "ms": taken, "norms": norms}), flush=True)
