// nxd/device.h: the recorded device.
#include "capi/engine_handles.h"
#include "capi/output_struct.h"
#include "capi/user_data.h"
#include "core/base/last_error.h"
#include "engine/device/device_metrics.h"
#include "engine/device/graph_text.h"
#include "engine/device/recording.h"
#include "engine/device/step_closures.h"
#include "engine/stablehlo/stablehlo_module.h"
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
    mark_step();
  });
}

nxd_status_t nxd_add_step_closure(nxd_step_closure_fn closure, void* user_data,
                                  nxd_destroy_fn destroy) {
  return guard([&] {
    check_argument(closure != nullptr, "closure: expected a function, got NULL");
    const auto user = std::make_shared<UserData>(user_data);
    add_step_closure([closure, user] {
      CallbackWatch().run([&] { return closure(user->data); }, "step closure");
    });
    user->destroy = destroy;
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

nxd_status_t nxd_device_get_step_graph(nxd_graph_format_t format, char* buf, size_t cap,
                                       size_t* out_needed) {
  return guard([&] {
    auto& needed = output(out_needed, "out_needed");
    check_argument(format >= NXD_GRAPH_FORMAT_TEXT && format <= NXD_GRAPH_FORMAT_STABLEHLO,
                   "format: expected an NXD_GRAPH_FORMAT_*, got ", format);
    const Recording* recording = Recording::existing();
    const RecordedGraph graph = recording ? recording->step_graph() : RecordedGraph();
    copy_text(format == NXD_GRAPH_FORMAT_STABLEHLO ? emit_stablehlo(graph).text
              : format == NXD_GRAPH_FORMAT_DOT     ? GraphText(graph).dot()
                                                   : GraphText(graph).lines(),
              buf, cap, needed);
  });
}
