// nxd/device.h: the recorded device.
#include "capi/engine_handles.h"
#include "capi/output_struct.h"
#include "engine/device/device_metrics.h"
#include "engine/device/recording.h"
#include "engine/tensor/host_copy.h"

using namespace nxd;

nxd_status_t nxd_tensor_to_device(nxd_tensor_t* tensor, nxd_device_t device,
                                  nxd_tensor_t** out_tensor) {
  return guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    out = wrap(moved_to(unwrap(tensor, "tensor"), device));
  });
}

nxd_status_t nxd_mark_step(int32_t wait) {
  return guard([&] {
    flag(wait, "wait");
    if (Recording* recording = Recording::existing()) recording->mark_step();
  });
}

nxd_status_t nxd_device_get_metrics(nxd_device_metrics_t* out_metrics) {
  return guard([&] {
    OutputStruct out(out_metrics, "out_metrics");
    const device_metrics::Counts c = device_metrics::counts();
    out.write({sizeof(nxd_device_metrics_t), c.recorded, c.steps, plan_count(), c.compiles,
               c.cache_hits, c.executions, c.implicit_syncs, c.fallbacks, c.compile_seconds,
               c.execute_seconds});
  });
}

nxd_status_t nxd_device_reset_metrics(void) {
  return guard([] { device_metrics::reset(); });
}

nxd_status_t nxd_device_get_report(char* buf, size_t cap, size_t* out_needed) {
  return guard([&] {
    auto& needed = output(out_needed, "out_needed");
    copy_text(device_metrics::report(), buf, cap, needed);
  });
}

nxd_status_t nxd_device_get_step_graph(char* buf, size_t cap, size_t* out_needed) {
  return guard([&] {
    auto& needed = output(out_needed, "out_needed");
    Recording* recording = Recording::existing();
    copy_text(recording ? recording->step_text() : "", buf, cap, needed);
  });
}
