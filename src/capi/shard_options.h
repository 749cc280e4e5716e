#pragma once

// Shards of weights as C++ values.
#include "capi/options.h"
#include "core/layout/shard_options.h"

namespace nxd {

inline const nxd_shard_options_t kShardDefaults = NXD_SHARD_OPTIONS_INIT;

inline ShardOptions resolve(const nxd_shard_options_t* given, const char* name) {
  const auto known = read_options(given, kShardDefaults, name);
  ShardOptions options;
  if (flag(known.has_dim, "has_dim")) {
    options.dim = known.dim;
  } else {
    // They say how dim is divided: a caller who sets one has forgotten has_dim.
    const auto expect_none = [](const char* field, int64_t value, int64_t none) {
      check_argument(value == 0 || value == none, field, ": expected ", none,
                     " for a weight that each rank has whole (has_dim 0), got ", value);
    };
    expect_none("dim", known.dim, 0);
    expect_none("size", known.size, 0);
    expect_none("num_fused", known.num_fused, 1);
    expect_none("num_heads", known.num_heads, 0);
  }
  options.size = known.size;
  if (known.num_fused != 0) options.num_fused = known.num_fused;
  options.num_heads = known.num_heads;
  return options;
}

}  // namespace nxd
