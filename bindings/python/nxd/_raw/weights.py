# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/weights.h."""

from __future__ import annotations

from enum import IntEnum
from typing import TypedDict


class Init(IntEnum):
    """Distribution of initial weights."""

    INVALID = -1
    # of the layer: see its comment
    DEFAULT = 0
    # mean a, standard deviation b
    NORMAL = 1
    # from a to b
    UNIFORM = 2
    # a
    CONSTANT = 3
    # He et al. 2015: bound sqrt(6 / ((1 + a^2) fan_in))
    KAIMING_UNIFORM = 4


class ShardOptions(TypedDict, total=False):
    """The part of a whole weight that a rank holds. Ranks have parts of one dimension, of equal
    sizes, in the ranks' order.
    """

    # of dim in the whole weight; 0: the shards' sizes together. Where these exceed it, the last
    # ranks have padding, which is zeros
    size: int
    # 1: ranks have parts of dim; 0: each rank has the whole weight, and the other fields are 0
    has_dim: int
    # from the end when negative
    dim: int
    # weights of one size that lie one after another along dim, such as those of gate and up
    # projection, of each of which a rank has its part; 0: 1. Without padding and num_heads
    num_fused: int
    # dim is so many heads; where there are fewer than ranks, several ranks have the same one. 0: of
    # no concern
    num_heads: int
