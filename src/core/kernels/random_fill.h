#pragma once

#include <cstdint>

#include "core/base/philox.h"

namespace nxd::kernels {

// The values of RandomSite::fill_uniform and fill_normal, to the bit, for the numbers first ...
// first + count - 1; on the team. dtype is F32 or F64.

void fill_uniform(const RandomSite& site, nxd_dtype_t dtype, void* out, uint64_t first,
                  int64_t count, double low, double high);
void fill_normal(const RandomSite& site, nxd_dtype_t dtype, void* out, uint64_t first,
                 int64_t count, double mean, double deviation);

}  // namespace nxd::kernels
