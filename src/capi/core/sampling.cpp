// The samplers of section 7 of nxd.h.
#include "capi/arguments.h"
#include "core/base/last_error.h"
#include "core/data/epoch_sampler.h"

using namespace nxd;

nxd_status_t nxd_sample_epoch(int64_t n_samples, int32_t ranks, int32_t rank, int64_t epoch,
                              uint64_t seed, int32_t shuffle, int32_t drop_last,
                              int64_t* out_indices, size_t cap, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    const EpochSampler sampler({n_samples, ranks, epoch, seed, shuffle != 0, drop_last != 0});
    sampler.check_rank(rank);
    const auto count = static_cast<size_t>(sampler.count());
    if (cap > 0) {
      check_argument(out_indices, "out_indices: expected room for ", cap, ", got NULL");
      check_argument(cap >= count, "cap: expected at least ", count, ", got ", cap);
      for (size_t i = 0; i < count; ++i) {
        out_indices[i] = sampler.sample(rank, static_cast<int64_t>(i));
      }
    }
    out = count;
  });
}
