"""Cost that the binding adds to a call, and an all-reduce of two processes. Prints two lines:
empty_call_ns (reading a context's rank) and all_reduce_1k_us (256 f32), each a median.

    python3 bench.py
"""

import statistics
import sys
import time

import numpy as np
import nxd.core as nxd


def median_seconds(call, n, batches=31):
    """Median seconds of one call, over batches of n."""
    times = []
    for _ in range(batches):
        begin = time.perf_counter()
        for _ in range(n):
            call()
        times.append((time.perf_counter() - begin) / n)
    return statistics.median(times)


def main():
    try:
        job = nxd.spawn(num_processes=2)
    except nxd.InvalidState:  # this process is a rank already
        return measure()
    with job:
        job.wait()


def measure():
    with nxd.Context() as ctx:
        empty = median_seconds(lambda: ctx.rank, 20000)
        world, array = ctx.world, np.zeros(256, "f4")
        world.all_reduce(array)
        reduce = median_seconds(lambda: world.all_reduce(array), 500)
        if ctx.rank == 0:
            print(f"empty_call_ns {1e9 * empty:.1f}\nall_reduce_1k_us {1e6 * reduce:.2f}")


if __name__ == "__main__":
    sys.exit(main())
