"""Errors are exceptions: first ranks that disagree, then a rank that dies in the middle. The
survivor gets PeerLost, which says who was lost, instead of waiting for ever.

    python3 lost_peer.py                      (starts two ranks itself)
"""

import os
import signal
import sys

import numpy as np
import nxd.core as nxd


def rank():
    ctx = nxd.Context(timeout_ms=60000)
    array = np.ones(4 + ctx.rank, "f4")
    try:
        ctx.world.all_reduce(array)
    except nxd.InvalidArgument as error:
        ctx.master_print(f"InvalidArgument: {error}")
    if ctx.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        ctx.world.barrier()
    except nxd.PeerLost as error:
        print(f"PeerLost: {error}")
        print(f"lost: rank {error.info.root_rank}, in {error.info.operation} "
              f"#{error.info.sequence} of group {error.info.group!r}", flush=True)
    ctx.close()  # leaves alone; finalize() would need the others


def main():
    try:
        job = nxd.spawn(num_processes=2)
    except nxd.InvalidState:  # this process is a rank already
        return rank()
    with job:
        try:
            job.wait()
        except nxd.PeerLost as error:
            print(f"the job: {error}")
    return None


if __name__ == "__main__":
    sys.exit(main())
