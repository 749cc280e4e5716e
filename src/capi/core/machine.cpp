// Section 6 of nxd.h.
#include "core/base/last_error.h"
#include "core/base/output_struct.h"
#include "core/base/phase_clock.h"
#include "core/comm/arena.h"
#include "core/kernels/gemm.h"
#include "core/kernels/memory_pool.h"
#include "core/kernels/parallel.h"

using namespace nxd;

nxd_status_t nxd_measure_gemm_peak(nxd_dtype_t dtype, int32_t n, double* out_flops) {
  if (out_flops) *out_flops = 0;
  return guard([&] {
    check_argument(out_flops, "out_flops: expected a pointer, got NULL");
    check_argument(n >= 0, "n: expected a size or 0, got ", n);
    *out_flops = kernels::measure_gemm_peak(dtype, n == 0 ? 2048 : n);
  });
}

nxd_status_t nxd_release_threads(void) {
  return guard([] { kernels::release_team(); });
}

nxd_status_t nxd_memory_get_stats(nxd_memory_stats_t* out_stats) {
  return guard([&] {
    OutputStruct out(out_stats, "out_stats");
    const kernels::PoolStats pool = kernels::pool_stats();
    const Arena::Stats arenas = Arena::stats();
    out.write({sizeof(nxd_memory_stats_t), pool.bytes_in_use, pool.bytes_reserved,
               pool.peak_bytes_in_use, pool.allocations, pool.system_allocations, pool.cap,
               arenas.bytes_in_use, arenas.bytes_reserved});
  });
}

nxd_status_t nxd_memory_set_cap(uint64_t bytes) {
  return guard([&] { kernels::pool_set_cap(bytes); });
}

nxd_status_t nxd_memory_trim(void) {
  return guard([] { kernels::pool_trim(); });
}

nxd_status_t nxd_profile_start(void) {
  return guard([] { phase_clock::start(); });
}

nxd_status_t nxd_profile_stop(void) {
  return guard([] { phase_clock::stop(); });
}

nxd_status_t nxd_profile_get_phase(nxd_phase_t phase, nxd_phase_stats_t* out_stats) {
  return guard([&] {
    OutputStruct out(out_stats, "out_stats");
    check_argument(phase >= 0 && phase < phase_clock::kPhases,
                   "phase: expected an NXD_PHASE_*, got ", phase);
    const phase_clock::Total total = phase_clock::total(phase);
    out.write({sizeof(nxd_phase_stats_t), phase_clock::name(phase), total.seconds, total.operations,
               total.calls});
  });
}
