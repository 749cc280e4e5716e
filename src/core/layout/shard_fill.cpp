#include "core/layout/shard_fill.h"

#include <cstring>

#include "core/base/dtype.h"

namespace nxd {
namespace {

template <class Fill>
void fill_runs(const ShardSpec& spec, nxd_dtype_t dtype, void* out, const Fill& fill) {
  check_argument(out || spec.local_size() == 0, "out: expected room for ", spec.local_size(),
                 " elements, got NULL");
  check_argument(dtype == NXD_DTYPE_F32 || dtype == NXD_DTYPE_F64,
                 "dtype: expected F32 or F64, got ", dtype_name(dtype));
  const size_t size = dtype_size(dtype);
  auto* bytes = static_cast<unsigned char*>(out);
  if (spec.has_padding() && bytes)
    std::memset(bytes, 0, static_cast<size_t>(spec.local_size()) * size);
  spec.for_each_run([&](int64_t global, int64_t local, int64_t count) {
    fill(bytes + static_cast<size_t>(local) * size, static_cast<uint64_t>(global),
         static_cast<size_t>(count));
  });
}

}  // namespace

void fill_uniform(const RandomSite& site, const ShardSpec& spec, nxd_dtype_t dtype, void* out,
                  double low, double high) {
  fill_runs(spec, dtype, out, [&](void* run, uint64_t first, size_t count) {
    site.fill_uniform(dtype, run, first, count, low, high);
  });
}

void fill_normal(const RandomSite& site, const ShardSpec& spec, nxd_dtype_t dtype, void* out,
                 double mean, double deviation) {
  fill_runs(spec, dtype, out, [&](void* run, uint64_t first, size_t count) {
    site.fill_normal(dtype, run, first, count, mean, deviation);
  });
}

}  // namespace nxd
