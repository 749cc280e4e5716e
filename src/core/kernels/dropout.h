#pragma once

#include <cstdint>

#include "core/base/philox.h"

namespace nxd::kernels {

// Elements of a site are kept with a probability, by the words of their numbers, as
// RandomSite::fill_bernoulli draws them: those of the numbers first ... first + count - 1.

// 1 for a kept element, else 0; on the team.
void draw_kept(const RandomSite& site, uint64_t first, int64_t count, double keep, uint8_t* out);

// 1 / keep for a kept element, else 0; on the calling thread. keep is above 0.
void draw_kept_factors(const RandomSite& site, uint64_t first, int64_t count, double keep,
                       float* out);

}  // namespace nxd::kernels
