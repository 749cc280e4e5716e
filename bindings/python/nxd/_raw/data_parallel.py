# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/data_parallel.h."""

from __future__ import annotations

from enum import IntEnum
from typing import TypedDict

from nxd._raw.base import Toggle
from nxd._raw.group import Reduce

NAMES = """
typedef int32_t nxd_placement_t;
typedef struct nxd_ddp nxd_ddp_t;
typedef struct nxd_ddp_options nxd_ddp_options_t;
typedef struct nxd_finish_options nxd_finish_options_t;
"""

TYPES = """
struct nxd_ddp_options {
  size_t struct_size;
  int64_t bucket_bytes;
  nxd_reduce_t reduce;
  int32_t zero_stage;
  int32_t fp32_grads;
  nxd_toggle_t overlap;
  nxd_toggle_t broadcast;
  int32_t reserved;
};
struct nxd_finish_options {
  size_t struct_size;
  double scale;
  double max_norm;
  double norm_type;
  nxd_reduce_t data_parallel_reduce;
  nxd_toggle_t check_finite;
};
"""

FUNCTIONS = """
nxd_status_t nxd_ddp_options_init(nxd_ddp_options_t* options, size_t size);
nxd_status_t nxd_ddp_create_buffers(nxd_context_t* ctx, nxd_group_t* group, const char* const* names, DLTensor* const* params, DLTensor* const* grads, size_t num_params, const nxd_ddp_options_t* options, nxd_ddp_t** out_ddp);
nxd_status_t nxd_ddp_set_placements(nxd_ddp_t* ddp, const nxd_placement_t* placements, const int32_t* dims, const int32_t* tied, size_t num_params);
nxd_status_t nxd_ddp_rebind(nxd_ddp_t* ddp, size_t index, DLTensor* param, DLTensor* grad);
nxd_status_t nxd_ddp_get_count(nxd_ddp_t* ddp, size_t* out_count);
nxd_status_t nxd_ddp_get_name(nxd_ddp_t* ddp, size_t index, const char** out_name);
nxd_status_t nxd_ddp_mark_ready(nxd_ddp_t* ddp, size_t index);
nxd_status_t nxd_ddp_mark_unused(nxd_ddp_t* ddp, size_t index);
nxd_status_t nxd_ddp_set_sync(nxd_ddp_t* ddp, int32_t sync);
nxd_status_t nxd_ddp_get_buffer_bytes(nxd_ddp_t* ddp, uint64_t* out_bytes);
nxd_status_t nxd_ddp_mark_reloaded(nxd_ddp_t* ddp);
void nxd_ddp_destroy(nxd_ddp_t* ddp);
nxd_status_t nxd_finish_options_init(nxd_finish_options_t* options, size_t size);
nxd_status_t nxd_ddp_finish(nxd_ddp_t* ddp, const nxd_finish_options_t* options, double* out_norm);
nxd_status_t nxd_sample_epoch(int64_t num_samples, int32_t ranks, int32_t rank, int64_t epoch, uint64_t seed, int32_t shuffle, int32_t drop_last, int64_t* out_indices, size_t cap, size_t* out_count);
"""


class Placement(IntEnum):
    """How the ranks of the tensor-parallel group hold a parameter."""

    INVALID = -1
    # each rank has an equal part along one dimension
    SHARDED = 0
    # the same values on all ranks, and the same gradient
    REPLICATED = 1
    # the same values; gradients are summed over the group when they are finished, such as those of
    # norms under sequence parallelism
    PARTIAL_GRAD = 2


class DdpOptions(TypedDict, total=False):
    """Options of nxd_ddp_create and nxd_ddp_create_buffers; the same on all ranks."""

    # 0: 25 MiB; a parameter that is larger has a bucket of its own
    bucket_bytes: int
    # SUM or AVG over the group
    reduce: Reduce | str
    # 0, or 1: state is sharded over the group
    zero_stage: int
    # 1: gradients of BF16 parameters of a module are accumulated and reduced in f32
    fp32_grads: int
    # default on; off: buckets are reduced when gradients are finished
    overlap: bool | Toggle | None
    # default on: the first rank's parameters are sent to the others
    broadcast: bool | Toggle | None


class FinishOptions(TypedDict, total=False):
    """Options for the completion of gradients."""

    # factor on all gradients before the norm, within F32; 0: 1
    scale: float
    # gradients are scaled to this norm when theirs exceeds it; 0: no clipping
    max_norm: float
    # 0: 2; 1 and infinity too
    norm_type: float
    # SUM or AVG over data-parallel ranks; a ddp's own option counts where there is one
    data_parallel_reduce: Reduce | str
    # default on; off: a norm that is not finite is no error
    check_finite: bool | Toggle | None


FIELDS: dict[str, dict[str, type]] = {
    "nxd_ddp_options_t": {
        "reduce": Reduce,
        "overlap": Toggle,
        "broadcast": Toggle,
    },
    "nxd_finish_options_t": {
        "data_parallel_reduce": Reduce,
        "check_finite": Toggle,
    },
}
