# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/job.h."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class SpawnOptions(TypedDict, total=False):
    """Options of nxd_spawn."""

    # at most 65536; 0: NEURON_NUM_DEVICES, NEURONCORE_NUM_DEVICES, or 1
    num_processes: int
    # OMP_NUM_THREADS of each; 0: as inherited, or 1 with more than one process
    omp_num_threads: int
    # NULL-terminated program, which is looked for in PATH where it has no '/', and arguments; NULL:
    # this program, re-executed with the arguments it was started with
    argv: Sequence[str]
