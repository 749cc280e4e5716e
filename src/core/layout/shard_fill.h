#pragma once

#include "core/base/philox.h"
#include "core/layout/shard_spec.h"

namespace nxd {

// Fills a rank's shard with random values of its global indices, so that every shard equals the
// slice of the whole tensor, bit for bit. Padding becomes zero. dtype is F32 or F64; out holds
// spec.local_size() elements in row-major order.
void fill_uniform(const RandomSite& site, const ShardSpec& spec, nxd_dtype_t dtype, void* out,
                  double low, double high);
void fill_normal(const RandomSite& site, const ShardSpec& spec, nxd_dtype_t dtype, void* out,
                 double mean, double deviation);
// Padding becomes zero too.
void fill_constant(const ShardSpec& spec, nxd_dtype_t dtype, void* out, double value);

}  // namespace nxd
