#pragma once

// Shards of weights as C++ values.
#include "capi/options.h"
#include "core/layout/shard_options.h"

namespace nxd {

inline const nxd_shard_options_t kShardDefaults = NXD_SHARD_OPTIONS_INIT;

inline ShardOptions resolve(const nxd_shard_options_t* given, const char* name) {
  const auto known = read_options(given, kShardDefaults, name);
  ShardOptions options;
  if (flag(known.has_dim, "has_dim")) options.dim = known.dim;
  options.size = known.size;
  if (known.num_fused != 0) options.num_fused = known.num_fused;
  options.num_heads = known.num_heads;
  return options;
}

}  // namespace nxd
