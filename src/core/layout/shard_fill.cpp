#include "core/layout/shard_fill.h"

#include <algorithm>
#include <cstring>

#include "core/base/dtype.h"
#include "core/kernels/random_fill.h"

namespace nxd {
namespace {

template <class Fill>
void fill_runs(const ShardSpec& spec, size_t size, void* out, const Fill& fill) {
  check_argument(out || spec.local_size() == 0, "out: expected room for ", spec.local_size(),
                 " elements, got NULL");
  auto* bytes = static_cast<unsigned char*>(out);
  if (spec.has_padding() && bytes)
    std::memset(bytes, 0, static_cast<size_t>(spec.local_size()) * size);
  spec.for_each_run([&](int64_t global, int64_t local, int64_t count) {
    fill(bytes + static_cast<size_t>(local) * size, static_cast<uint64_t>(global),
         static_cast<size_t>(count));
  });
}

void check_drawn(nxd_dtype_t dtype) {
  check_argument(dtype == NXD_DTYPE_F32 || dtype == NXD_DTYPE_F64,
                 "dtype: expected F32 or F64, got ", dtype_name(dtype));
}

}  // namespace

void fill_uniform(const RandomSite& site, const ShardSpec& spec, nxd_dtype_t dtype, void* out,
                  double low, double high) {
  check_drawn(dtype);
  fill_runs(spec, dtype_size(dtype), out, [&](void* run, uint64_t first, size_t count) {
    kernels::fill_uniform(site, dtype, run, first, static_cast<int64_t>(count), low, high);
  });
}

void fill_normal(const RandomSite& site, const ShardSpec& spec, nxd_dtype_t dtype, void* out,
                 double mean, double deviation) {
  check_drawn(dtype);
  fill_runs(spec, dtype_size(dtype), out, [&](void* run, uint64_t first, size_t count) {
    kernels::fill_normal(site, dtype, run, first, static_cast<int64_t>(count), mean, deviation);
  });
}

void fill_constant(const ShardSpec& spec, nxd_dtype_t dtype, void* out, double value) {
  check_drawn(dtype);
  fill_runs(spec, dtype_size(dtype), out, [&](void* run, uint64_t, size_t count) {
    if (dtype == NXD_DTYPE_F64) {
      std::fill_n(static_cast<double*>(run), count, value);
    } else {
      std::fill_n(static_cast<float*>(run), count, static_cast<float>(value));
    }
  });
}

}  // namespace nxd
