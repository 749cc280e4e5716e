# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/module.h."""

from __future__ import annotations

from enum import IntEnum
from typing import TypedDict

from nxd._raw.base import DType, Device
from nxd._raw.weights import Init


class Mismatch(IntEnum):
    """Kinds of mismatch."""

    INVALID = -1
    # a parameter that the file lacks
    MISSING = 0
    # a tensor that the model lacks
    UNEXPECTED = 1
    # a tensor of another shape than the parameter's
    SHAPE = 2


class ParameterOptions(TypedDict, total=False):
    """How a parameter of the caller's is sharded and initialised."""

    # F32 (0), F64 or BF16
    dtype: DType | str
    # 1: shard_dim is split over tensor-parallel ranks; 0: replicated
    has_shard_dim: int
    # 1: its gradient is partial per tensor-parallel rank and summed
    sequence_parallel: int
    # DEFAULT: zeros
    init: Init | str
    init_a: float
    init_b: float
    # META: without values until nxd_move_model_to_device or nxd_pp_create
    device: Device | str
    shard_dim: int


FIELDS: dict[str, dict[str, type]] = {
    "nxd_parameter_options_t": {
        "dtype": DType,
        "init": Init,
        "device": Device,
    },
}
