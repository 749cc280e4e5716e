# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/weights.h."""

from __future__ import annotations

from enum import IntEnum
from typing import TypedDict

NAMES = """
typedef int32_t nxd_init_t;
typedef struct nxd_shard_options nxd_shard_options_t;
"""

TYPES = """
struct nxd_shard_options {
  size_t struct_size;
  int64_t size;
  int32_t has_dim;
  int32_t dim;
  int32_t num_fused;
  int32_t num_heads;
};
"""

FUNCTIONS = """
nxd_status_t nxd_shard_options_init(nxd_shard_options_t* options, size_t size);
nxd_status_t nxd_shard_initialize(nxd_context_t* ctx, const char* name, nxd_init_t init, double a, double b, const nxd_shard_options_t* options, DLTensor* shard);
nxd_status_t nxd_shard_set_full(nxd_context_t* ctx, const DLTensor* full, const nxd_shard_options_t* options, DLTensor* shard);
nxd_status_t nxd_shard_gather_full(nxd_context_t* ctx, const DLTensor* shard, const nxd_shard_options_t* options, DLTensor* full);
nxd_status_t nxd_shard_load_safetensors(nxd_context_t* ctx, const char* path, const char* name, const nxd_shard_options_t* options, DLTensor* shard);
"""


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
    # 1: ranks have parts of dim; 0: each rank has the whole weight
    has_dim: int
    # from the end when negative
    dim: int
    # weights of one size that lie one after another along dim, such as those of gate and up
    # projection, of each of which a rank has its part; 0: 1
    num_fused: int
    # dim is so many heads; where there are fewer than ranks, several ranks have the same one. 0: of
    # no concern
    num_heads: int
