#include "core/tensor_parallel/dropout_mask.h"

#include "core/layout/shard_fill.h"

namespace nxd {

RandomSite dropout_site(uint64_t seed, const std::string& name) {
  return RandomSite(seed, "dropout:" + name);
}

void draw_kept(const RandomSite& site, ShardSpec::Shape part, int dim, int rank, int ranks,
               double keep_probability, uint8_t* mask) {
  if (dim >= 0) part[static_cast<size_t>(dim)] *= ranks;
  const ShardSpec spec =
      dim < 0 ? ShardSpec::replicated(part) : ShardSpec::split(part, dim, rank, ranks);
  fill_bernoulli(site, spec, mask, keep_probability);
}

}  // namespace nxd
