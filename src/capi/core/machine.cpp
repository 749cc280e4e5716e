// Section 6 of nxd.h.
#include "core/base/last_error.h"
#include "core/kernels/gemm.h"
#include "core/kernels/memory_pool.h"

using namespace nxd;

nxd_status_t nxd_measure_gemm_peak(nxd_dtype_t dtype, int32_t n, double* out_flops) {
  if (out_flops) *out_flops = 0;
  return guard([&] {
    check_argument(out_flops, "out_flops: expected a pointer, got NULL");
    check_argument(n >= 0, "n: expected a size or 0, got ", n);
    *out_flops = kernels::measure_gemm_peak(dtype, n == 0 ? 2048 : n);
  });
}

nxd_status_t nxd_memory_get_stats(nxd_memory_stats_t* out_stats) {
  return guard([&] {
    check_argument(out_stats, "out_stats: expected a pointer, got NULL");
    if (out_stats->struct_size != sizeof(nxd_memory_stats_t)) {
      fail(NXD_ERROR_ABI_MISMATCH, "out_stats->struct_size: expected ", sizeof(nxd_memory_stats_t),
           ", got ", out_stats->struct_size);
    }
    const kernels::PoolStats stats = kernels::pool_stats();
    out_stats->bytes_in_use = stats.bytes_in_use;
    out_stats->bytes_reserved = stats.bytes_reserved;
    out_stats->peak_bytes_in_use = stats.peak_bytes_in_use;
    out_stats->allocations = stats.allocations;
    out_stats->system_allocations = stats.system_allocations;
  });
}

nxd_status_t nxd_memory_trim(void) {
  return guard([] { kernels::pool_trim(); });
}
