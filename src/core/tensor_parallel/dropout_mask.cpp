#include "core/tensor_parallel/dropout_mask.h"

#include <algorithm>
#include <utility>

#include "core/kernels/dropout.h"

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
  check_argument(mask || shard.local_size() == 0, "mask: expected room for ", shard.local_size(),
                 " elements, got NULL");
  if (shard.has_padding()) std::fill_n(mask, shard.local_size(), uint8_t{0});
  shard.for_each_run([&](int64_t global, int64_t local, int64_t count) {
    kernels::draw_kept(site, static_cast<uint64_t>(global), count, keep_probability, mask + local);
  });
}

}  // namespace nxd
