#include "core/tensor_parallel/dropout_mask.h"

#include <utility>

#include "core/layout/shard_fill.h"

namespace nxd {

RandomSite dropout_site(uint64_t seed, const std::string& name) {
  return RandomSite(seed, "dropout:" + name);
}

ShardSpec dropout_shard(ShardSpec::Shape part, int dim, int rank, int ranks) {
  if (dim < 0) return ShardSpec::replicated(std::move(part));
  part[static_cast<size_t>(dim)] *= ranks;
  return ShardSpec::split(std::move(part), dim, rank, ranks);
}

void draw_kept(const RandomSite& site, const ShardSpec& shard, double keep_probability,
               uint8_t* mask) {
  fill_bernoulli(site, shard, mask, keep_probability);
}

}  // namespace nxd
