# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/machine.h."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NAMES = """
typedef int32_t nxd_phase_t;
typedef struct nxd_phase_stats nxd_phase_stats_t;
"""

TYPES = """
struct nxd_phase_stats {
  size_t struct_size;
  const char* name;
  double seconds;
  double operations;
  uint64_t calls;
};
"""

FUNCTIONS = """
int32_t nxd_cpu_mode(void);
nxd_status_t nxd_get_device(nxd_device_t* out_device);
nxd_status_t nxd_measure_gemm_peak(nxd_dtype_t dtype, int32_t size, double* out_rate);
nxd_status_t nxd_release_threads(void);
nxd_status_t nxd_profile_start(void);
nxd_status_t nxd_profile_stop(void);
nxd_status_t nxd_profile_get_phase(nxd_phase_t phase, nxd_phase_stats_t* out_stats);
"""


class Phase(IntEnum):
    """Work that the library spends time on while it trains."""

    INVALID = -1
    # y = x W^T of linear layers
    GEMM_FORWARD = 0
    # dx = dy W
    GEMM_INPUT_GRAD = 1
    # dW = dy^T x
    GEMM_WEIGHT_GRAD = 2
    # with its products
    ATTENTION = 3
    CROSS_ENTROPY = 4
    # norms, activations, rotary and other embeddings, casts
    ELEMENTWISE = 5
    # updates, and norms and scaling of gradients
    OPTIMIZER = 6
    # collectives and messages, with the wait for other ranks
    COMMUNICATION = 7


class PhaseStats(NamedTuple):
    """Time and calls of a phase, from nxd_profile_get_phase."""

    # static storage, such as "GEMM forward"
    name: str
    # wall time of the threads that called kernels, added up
    seconds: float
    # floating-point operations: of GEMMs 2 m n k, of attention those that the mask leaves, without
    # the scores computed again; 0 elsewhere
    operations: float
    calls: int
