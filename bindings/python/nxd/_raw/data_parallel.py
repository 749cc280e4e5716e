# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/data_parallel.h."""

from __future__ import annotations

from enum import IntEnum
from typing import TypedDict

from nxd._raw.base import Toggle
from nxd._raw.group import Reduce


class Placement(IntEnum):
    """How the ranks of the tensor-parallel group hold a parameter."""

    INVALID = -1
    # each rank has an equal part along one dimension, in the order of the ranks and without
    # padding; else nxd_ddp_set_shards
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

    # factor on all gradients before the norm, a normal number of F32; 0: 1
    scale: float
    # gradients are scaled to this norm when theirs exceeds it and is finite; 0: no clipping
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
