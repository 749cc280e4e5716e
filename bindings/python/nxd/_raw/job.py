# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/job.h."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

NAMES = """
typedef struct nxd_job nxd_job_t;
typedef struct nxd_spawn_options nxd_spawn_options_t;
"""

TYPES = """
struct nxd_spawn_options {
  size_t struct_size;
  int32_t num_processes;
  int32_t omp_num_threads;
  const char* const* argv;
};
"""

FUNCTIONS = """
nxd_status_t nxd_spawn_options_init(nxd_spawn_options_t* options, size_t size);
nxd_status_t nxd_spawn(const nxd_spawn_options_t* options, nxd_job_t** out_job);
nxd_status_t nxd_job_wait(nxd_job_t* job, int64_t timeout_ms);
nxd_status_t nxd_job_kill(nxd_job_t* job, int32_t signal_number);
nxd_status_t nxd_job_get_size(nxd_job_t* job, int32_t* out_size);
nxd_status_t nxd_job_get_exit_code(nxd_job_t* job, int32_t rank, int32_t* out_running, int32_t* out_exit_code);
nxd_status_t nxd_job_get_pid(nxd_job_t* job, int32_t rank, int64_t* out_pid);
void nxd_job_destroy(nxd_job_t* job);
"""


class SpawnOptions(TypedDict, total=False):
    """Options of nxd_spawn."""

    # 0: NEURON_NUM_DEVICES, or 1
    num_processes: int
    # OMP_NUM_THREADS of each; 0: as inherited, or 1 with more than one process
    omp_num_threads: int
    # NULL-terminated program and arguments; NULL: this program, re-executed with its own arguments
    argv: Sequence[str]
