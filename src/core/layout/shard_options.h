#pragma once

#include <optional>

#include "core/layout/shard_spec.h"

namespace nxd {

// How a caller describes the part that each rank has of a weight.
struct ShardOptions {
  std::optional<int64_t> dim{};  // absent: each rank has the whole weight
  int64_t size = 0;              // of dim in the whole weight; 0: the shards' together
  int num_fused = 1;
  int num_heads = 0;  // 0: of no concern
};

// The part that a rank of so many holds of a weight of which it has an array of this shape.
// INVALID_ARGUMENT where no whole weight has such a shard.
ShardSpec shard_of(const ShardSpec::Shape& local, const ShardOptions& options, int rank, int ranks);

// How many ranks, one after another, hold the same part: all of a whole weight, or those of a head.
int ranks_alike(const ShardOptions& options, int ranks);

}  // namespace nxd
