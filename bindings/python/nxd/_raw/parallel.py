# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/parallel.h."""

from __future__ import annotations

from enum import IntEnum
from typing import TypedDict

NAMES = """
typedef int32_t nxd_axis_t;
typedef int32_t nxd_platform_t;
typedef struct nxd_parallel_options nxd_parallel_options_t;
"""

TYPES = """
struct nxd_parallel_options {
  size_t struct_size;
  int32_t tensor_parallel_size;
  int32_t pipeline_parallel_size;
  int32_t context_parallel_size;
  int32_t expert_parallel_size;
  nxd_platform_t platform;
  int32_t lnc_size;
  int32_t local_world_size;
  int32_t reserved;
};
"""

FUNCTIONS = """
nxd_status_t nxd_parallel_options_init(nxd_parallel_options_t* options, size_t size);
nxd_status_t nxd_layout_get_group_count(const nxd_parallel_options_t* options, int32_t world_size, nxd_axis_t axis, int32_t* out_count);
nxd_status_t nxd_layout_get_group(const nxd_parallel_options_t* options, int32_t world_size, nxd_axis_t axis, int32_t index, int32_t* ranks, size_t cap, size_t* out_size);
nxd_status_t nxd_layout_find_rank(const nxd_parallel_options_t* options, int32_t world_size, nxd_axis_t axis, int32_t rank, int32_t* out_group_index, int32_t* out_rank_in_group);
nxd_status_t nxd_init_model_parallel(nxd_context_t* ctx, const nxd_parallel_options_t* options);
nxd_status_t nxd_destroy_model_parallel(nxd_context_t* ctx);
int32_t nxd_model_parallel_is_initialized(nxd_context_t* ctx);
nxd_status_t nxd_parallel_get_size(nxd_context_t* ctx, nxd_axis_t axis, int32_t* out_size);
nxd_status_t nxd_parallel_get_rank(nxd_context_t* ctx, nxd_axis_t axis, int32_t* out_rank);
nxd_status_t nxd_parallel_get_source_rank(nxd_context_t* ctx, nxd_axis_t axis, int32_t* out_rank);
nxd_status_t nxd_parallel_get_group(nxd_context_t* ctx, nxd_axis_t axis, nxd_group_t** out_group);
nxd_status_t nxd_parallel_get_group_list(nxd_context_t* ctx, nxd_axis_t axis, int32_t index, int32_t* ranks, size_t cap, size_t* out_size, int32_t* out_count);
nxd_status_t nxd_parallel_get_pipeline_next_rank(nxd_context_t* ctx, int32_t* out_rank);
nxd_status_t nxd_parallel_get_pipeline_previous_rank(nxd_context_t* ctx, int32_t* out_rank);
"""


class Axis(IntEnum):
    """Axes of the rank layout."""

    INVALID = -1
    WORLD = 0
    TENSOR = 1
    PIPELINE = 2
    DATA = 3
    CONTEXT = 4
    EXPERT_MODEL = 5
    EXPERT_DATA = 6


class Platform(IntEnum):
    """Hardware that decides the order of ranks."""

    INVALID = -1
    # tensor-parallel ranks adjacent, then context, data, pipeline
    NEUTRAL = 0
    # as neutral, but tensor groups of 4 are strided within a host
    TRN1 = 1
    # as neutral, but tensor groups of 64 (32 with lnc_size 2) are rings
    TRN2 = 2


class ParallelOptions(TypedDict, total=False):
    """A layout of ranks. Sizes are rejected, never clamped: tensor x pipeline x context, and tensor
    x pipeline x expert, must divide the world. Context- and expert-parallel groups are for a
    caller's own use: nothing is reduced over them, so with a size above 1 layers, models, their
    training, pipelines, and ddps over buffers without a group of their own are UNSUPPORTED.
    """

    # 0: 1
    tensor_parallel_size: int
    # 0: 1
    pipeline_parallel_size: int
    # 0: 1
    context_parallel_size: int
    # 0: 1
    expert_parallel_size: int
    platform: Platform | str
    # logical core configuration, 1 or 2; 0: 1
    lnc_size: int
    # ranks per host, for TRN1 and TRN2; 0: the whole world
    local_world_size: int


FIELDS: dict[str, dict[str, type]] = {
    "nxd_parallel_options_t": {
        "platform": Platform,
    },
}
