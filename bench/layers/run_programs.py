"""Runs drawn programs on all ranks, by run_buffers.py and run_tensors.py."""

import pathlib
import sys

import nxd.core as nxd


def run_programs(kind, run):
    """run(context, seed): what differs, in lines to print behind the program's name. Arguments of the process: a
    directory whose file `last` has the seed of the program that runs, how many programs, and the first seed."""
    directory, count, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    bad = 0
    with nxd.Context(timeout_ms=120000) as context:
        for seed in range(first, first + count):
            if context.rank == 0:
                pathlib.Path(directory, "last").write_text(str(seed))
            found = run(context, seed)
            bad += bool(found)
            for each in found:
                print(f"FAILED: program {seed} of {context.size} ranks, rank {context.rank}: {each}", flush=True)
        if context.rank == 0:
            print(f"{count} programs of {kind} on {context.size} ranks, {bad} differ", flush=True)
    sys.exit(bad > 0)
