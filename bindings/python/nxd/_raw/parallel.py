# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/parallel.h."""

from __future__ import annotations

from enum import IntEnum
from typing import TypedDict

from nxd._raw.base import DType


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
    # as neutral, but tensor groups of 64 are rings; with lnc_size 2 those of 32 instead, in worlds
    # of 64 ranks or more
    TRN2 = 2


class ParallelOptions(TypedDict, total=False):
    """A layout of ranks. Sizes are rejected, never clamped: tensor x pipeline x context, and tensor
    x pipeline x expert, must divide the world. Context- and expert-parallel groups are for a
    caller's own use: nothing is reduced over them, so with a size above 1 layers, models, their
    training, pipelines, and ddps over buffers without a group of their own are UNSUPPORTED.
    reduce_dtype is no part of a layout: tensor-parallel ranks exchange the partial sums of linear
    layers in it, where these are BF16. BF16 halves the bytes; each rank's part is then rounded
    before the parts are added.
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
    # F32, or BF16: of the partial sums of BF16 linear layers
    reduce_dtype: DType | str


FIELDS: dict[str, dict[str, type]] = {
    "nxd_parallel_options_t": {
        "platform": Platform,
        "reduce_dtype": DType,
    },
}
