// nxd/machine.h: the device, limits, phases.
#include "capi/output_struct.h"
#include "core/base/environment.h"
#include "core/base/last_error.h"
#include "core/base/profiler.h"
#include "core/kernels/gemm.h"
#include "core/kernels/parallel.h"
#include "core/pjrt/training_device.h"

using namespace nxd;

int32_t nxd_cpu_mode(void) { return env::cpu_mode() ? 1 : 0; }

nxd_status_t nxd_get_device(nxd_device_t* out_device) {
  return guard([&] {
    // NXD_DEVICE_CPU is 0, so a failed call leaves the invalid device.
    check_argument(out_device, "out_device: expected a pointer, got NULL");
    *out_device = NXD_DEVICE_INVALID;
    *out_device = training_device();
  });
}

nxd_status_t nxd_measure_gemm_peak(nxd_dtype_t dtype, int32_t size, double* out_rate) {
  if (out_rate) *out_rate = 0;
  return guard([&] {
    check_argument(out_rate, "out_rate: expected a pointer, got NULL");
    check_argument(size >= 0, "size: expected a size or 0, got ", size);
    *out_rate = kernels::measure_gemm_peak(dtype, size == 0 ? 2048 : size);
  });
}

nxd_status_t nxd_release_threads(void) {
  return guard([] { kernels::release_team(); });
}

nxd_status_t nxd_profile_start(void) {
  return guard([] { profiler::start(); });
}

nxd_status_t nxd_profile_stop(void) {
  return guard([] { profiler::stop(); });
}

nxd_status_t nxd_profile_get_phase(nxd_phase_t phase, nxd_phase_stats_t* out_stats) {
  return guard([&] {
    OutputStruct out(out_stats, "out_stats");
    check_argument(phase >= 0 && phase < profiler::kPhases, "phase: expected an NXD_PHASE_*, got ",
                   phase);
    const profiler::Total total = profiler::total(phase);
    out.write({sizeof(nxd_phase_stats_t), profiler::name(phase), total.seconds, total.operations,
               total.calls, total.waiting_seconds});
  });
}
