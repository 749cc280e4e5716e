// nxd/device.h: the recorded device.
#include "capi/data_handles.h"
#include "capi/engine_handles.h"
#include "capi/options.h"
#include "capi/output_struct.h"
#include "capi/user_data.h"
#include "core/base/callback_thread.h"
#include "core/base/last_error.h"
#include "engine/device/device_metrics.h"
#include "engine/device/graph_text.h"
#include "engine/device/recording.h"
#include "engine/device/step_closures.h"
#include "engine/stablehlo/pjrt_program.h"
#include "engine/tensor/host_copy.h"
#include "engine/training/token_batches.h"

struct nxd_device_loader {
  std::unique_ptr<nxd::DeviceLoader> value;
  nxd::ForkGuard fork_guard{};
};

using namespace nxd;

namespace {

constexpr size_t kMostTensorsOfBatch = 1024;
const nxd_device_loader_options_t kDeviceLoaderDefaults = NXD_DEVICE_LOADER_OPTIONS_INIT;

DeviceLoader::Options resolve(const nxd_device_loader_options_t* given, nxd_device_t device) {
  const auto known = read_options(given, kDeviceLoaderDefaults, "options");
  DeviceLoader::Options out;
  out.device = device;
  if (known.batches_per_execution != 0) out.batches_per_execution = known.batches_per_execution;
  if (known.prefetch != 0) out.prefetch = known.prefetch;
  return out;
}

DeviceLoader& unwrap_device_loader(nxd_device_loader_t* loader) {
  check_argument(loader, "loader: expected a loader, got NULL");
  loader->fork_guard.check("loader");
  return *loader->value;
}

// The batches that a caller's function makes.
class CallbackBatches final : public BatchSource {
 public:
  CallbackBatches(nxd_read_batch_fn read, std::shared_ptr<UserData> user, size_t width)
      : read_(read), user_(std::move(user)), width_(width) {}

  size_t width() const override { return width_; }
  std::optional<Tensors> read() override {
    OwnedHandles out(width_);
    int32_t end = 0;
    const ProgramsCallback programs(user_->signals);
    CallbackWatch().run([&] { return read_(out.data(), out.size(), &end, user_->data); },
                        kReadBatch);
    const size_t filled = out.filled(), expected = flag(end, "out_end") ? 0 : width_;
    check_argument(filled == expected, kReadBatch, ": expected ", expected, " tensors, got ",
                   filled);
    if (expected == 0) return std::nullopt;
    Tensors batch = out.take([](const auto*) { return false; }, kReadBatch, true);
    ++position_;
    return batch;
  }
  int64_t position() const override { return position_; }
  void set_position(int64_t) override {
    fail(NXD_ERROR_UNSUPPORTED, "loader: its batches come from a function, which goes on");
  }

 private:
  static constexpr const char* kReadBatch = "read_batch";

  const nxd_read_batch_fn read_;
  const std::shared_ptr<UserData> user_;
  const size_t width_;
  int64_t position_ = 0;
};

// Checked first: a closure must not be added with what is none.
StepClosure checked_closure(nxd_step_closure_fn closure, const std::shared_ptr<UserData>& user) {
  check_argument(closure != nullptr, "closure: expected a function, got NULL");
  return [closure, user] {
    const ProgramsCallback programs(user->signals);
    CallbackWatch().run([&] { return closure(user->data); }, "step closure");
  };
}

}  // namespace

nxd_status_t nxd_tensor_to_device(nxd_tensor_t* tensor, nxd_device_t device,
                                  nxd_tensor_t** out_tensor) {
  return guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    out = wrap(moved_to(unwrap(tensor, "tensor"), device));
  });
}

nxd_status_t nxd_mark_step(int32_t wait) {
  return guard([&] { mark_step(flag(wait, "wait")); });
}

nxd_status_t nxd_add_step_closure(nxd_step_closure_fn closure, void* user_data,
                                  nxd_destroy_fn destroy) {
  return guard([&] {
    const auto user = std::make_shared<UserData>(user_data);
    add_step_closure(checked_closure(closure, user));
    user->destroy = destroy;
  });
}

nxd_status_t nxd_add_step_closure_async(nxd_step_closure_fn closure, void* user_data,
                                        nxd_destroy_fn destroy) {
  return guard([&] {
    const auto user = std::make_shared<UserData>(user_data);
    add_step_closure_async(checked_closure(closure, user));
    user->destroy = destroy;
  });
}

nxd_status_t nxd_wait_step_closures(void) {
  return guard([] { wait_step_closures(); });
}

nxd_status_t nxd_device_loader_options_init(nxd_device_loader_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kDeviceLoaderDefaults, "options"); });
}

nxd_status_t nxd_device_loader_create(nxd_data_loader_t* loader, nxd_device_t device,
                                      const nxd_device_loader_options_t* options,
                                      nxd_device_loader_t** out_loader) {
  return guard([&] {
    auto& out = output(out_loader, "out_loader");
    unwrap(loader);
    auto batches = std::make_unique<TokenBatches>(loader->value);
    auto handle = std::make_unique<nxd_device_loader>();
    handle->value = std::make_unique<DeviceLoader>(std::move(batches), resolve(options, device));
    out = handle.release();
  });
}

nxd_status_t nxd_device_loader_create_callback(nxd_read_batch_fn read, void* user_data,
                                               nxd_destroy_fn destroy, size_t num_tensors,
                                               nxd_device_t device,
                                               const nxd_device_loader_options_t* options,
                                               nxd_device_loader_t** out_loader) {
  return guard([&] {
    auto& out = output(out_loader, "out_loader");
    check_argument(read != nullptr, "read: expected a function, got NULL");
    check_argument(num_tensors >= 1 && num_tensors <= kMostTensorsOfBatch,
                   "num_tensors: expected 1 to ", kMostTensorsOfBatch, ", got ", num_tensors);
    const auto user = std::make_shared<UserData>(user_data);
    auto handle = std::make_unique<nxd_device_loader>();
    handle->value = std::make_unique<DeviceLoader>(
        std::make_unique<CallbackBatches>(read, user, num_tensors), resolve(options, device));
    user->destroy = destroy;
    out = handle.release();
  });
}

nxd_status_t nxd_device_loader_next(nxd_device_loader_t* loader, nxd_tensor_t** outputs,
                                    size_t num_outputs, int32_t* out_end) {
  return guard([&] {
    if (out_end) *out_end = 0;
    clear_outputs(outputs, num_outputs, "outputs");
    auto& end = output(out_end, "out_end");
    DeviceLoader& known = unwrap_device_loader(loader);
    check_argument(num_outputs == known.width(), "num_outputs: expected ", known.width(),
                   " of a batch, got ", num_outputs);
    const std::optional<BatchSource::Tensors> batch = known.next();
    end = batch ? 0 : 1;
    if (batch) wrap_all(*batch, outputs);
  });
}

nxd_status_t nxd_device_loader_get_position(nxd_device_loader_t* loader, int64_t* out_position) {
  return guard([&] {
    auto& out = output(out_position, "out_position");
    out = unwrap_device_loader(loader).position();
  });
}

nxd_status_t nxd_device_loader_set_position(nxd_device_loader_t* loader, int64_t position) {
  return guard([&] { unwrap_device_loader(loader).set_position(position); });
}

// A forked child has the parent's memory, but not the thread that reads.
void nxd_device_loader_destroy(nxd_device_loader_t* loader) {
  const Uncancelled whole_call;
  if (loader && !loader->fork_guard.is_foreign()) delete loader;
}

nxd_status_t nxd_device_get_metrics(nxd_device_metrics_t* out_metrics) {
  return guard([&] {
    OutputStruct out(out_metrics, "out_metrics");
    wait_for_step();
    const device_metrics::Counts c = device_metrics::counts();
    out.write({sizeof(nxd_device_metrics_t), c.recorded, c.steps, plan_count(), c.compiles,
               c.cache_hits, c.executions, c.implicit_syncs, c.fallbacks, c.compile_seconds,
               c.execute_seconds, c.loads, c.load_seconds, c.argument_bytes, c.result_bytes,
               c.copied_bytes});
  });
}

nxd_status_t nxd_device_reset_metrics(void) {
  return guard([] {
    wait_for_step();
    device_metrics::reset();
  });
}

nxd_status_t nxd_device_get_report(char* buf, size_t cap, size_t* out_needed) {
  return guard([&] {
    auto& needed = output(out_needed, "out_needed");
    wait_for_step();
    copy_text(device_metrics::report(), buf, cap, needed);
  });
}

nxd_status_t nxd_device_get_step_graph(nxd_graph_format_t format, char* buf, size_t cap,
                                       size_t* out_needed) {
  return guard([&] {
    auto& needed = output(out_needed, "out_needed");
    check_argument(format >= NXD_GRAPH_FORMAT_TEXT && format <= NXD_GRAPH_FORMAT_STABLEHLO,
                   "format: expected an NXD_GRAPH_FORMAT_*, got ", format);
    Recording* const recording = Recording::existing();
    const RecordedGraph graph = recording ? recording->step_graph() : RecordedGraph();
    copy_text(format == NXD_GRAPH_FORMAT_STABLEHLO ? stablehlo_of(graph)
              : format == NXD_GRAPH_FORMAT_DOT     ? GraphText(graph).dot()
                                                   : GraphText(graph).lines(),
              buf, cap, needed);
  });
}
