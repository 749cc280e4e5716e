#include "core/layout/shard_options.h"

#include <algorithm>

namespace nxd {
namespace {

// The size of a dimension of the whole weight, of which ranks have shards of so many.
int64_t whole_size(int64_t local, const ShardOptions& options, int ranks) {
  // Ranks that share a head have it as one.
  const int64_t parts = options.num_heads > 0 ? std::min(options.num_heads, ranks) : ranks;
  int64_t all = 0;
  check_argument(!__builtin_mul_overflow(local, parts, &all),
                 "shard: expected sizes that fit in memory, got ", local);
  const int64_t size = options.size == 0 ? all : options.size;
  check_argument(size >= 0 && size <= all, "size: expected 0 to ", all,
                 ", the shards' sizes together, got ", options.size);
  return size;
}

}  // namespace

int ranks_alike(const ShardOptions& options, int ranks) {
  if (!options.dim) return ranks;
  return options.num_heads > 0 ? std::max(1, ranks / options.num_heads) : 1;
}

ShardSpec shard_of(const ShardSpec::Shape& local, const ShardOptions& options, int rank,
                   int ranks) {
  check_argument(options.num_fused >= 1, "num_fused: expected 0 or more, got ", options.num_fused);
  check_argument(options.num_heads >= 0, "num_heads: expected 0 or more, got ", options.num_heads);
  check_argument(options.size >= 0, "size: expected 0 or more, got ", options.size);
  if (!options.dim) return ShardSpec::replicated(local);
  const auto dims = static_cast<int64_t>(local.size());
  check_argument(*options.dim >= -dims && *options.dim < dims,
                 "dim: expected a dimension of an array with ", dims, " dimensions, got ",
                 *options.dim);
  const auto dim = static_cast<int>(*options.dim < 0 ? *options.dim + dims : *options.dim);
  const int64_t own = local[static_cast<size_t>(dim)];
  const int64_t size = whole_size(own, options, ranks);
  const bool pads = options.num_heads == 0 && size != own * ranks;
  check_argument(
      !(pads && options.num_fused > 1) && !(options.num_heads > 0 && options.num_fused > 1),
      "num_fused: expected 1 for a weight with padding or heads, got ", options.num_fused);
  ShardSpec::Shape whole = local;
  whole[static_cast<size_t>(dim)] = size;
  ShardSpec spec = options.num_heads > 0
                       ? ShardSpec::heads(whole, dim, options.num_heads, rank, ranks)
                   : pads ? ShardSpec::padded(whole, dim, own * ranks, rank, ranks)
                          : ShardSpec::strided(whole, dim, rank, ranks, options.num_fused);
  check_argument(spec.local_shape() == local, "shard: expected the shape ",
                 shape_text(spec.local_shape()), ", got ", shape_text(local));
  return spec;
}

}  // namespace nxd
