// Section 8 of nxd.h: pipelines over a caller's stages. Schedules are in pp_schedule.cpp.
#include "capi/handles.h"
#include "core/base/last_error.h"
#include "core/base/options.h"
#include "core/pipeline/callback_pipeline.h"

using namespace nxd;

namespace {

const nxd_pp_callbacks_options_t kDefaults = NXD_PP_CALLBACKS_OPTIONS_INIT;

Pipeline& unwrap(nxd_pp_t* pp) {
  check_argument(pp, "pp: expected a pipeline, got NULL");
  return *pp->value;
}

}  // namespace

nxd_status_t nxd_pp_callbacks_options_init(nxd_pp_callbacks_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kDefaults, "options"); });
}

nxd_status_t nxd_pp_create_callbacks(nxd_context_t* ctx, const nxd_pp_callbacks_options_t* options,
                                     const nxd_pp_value_t* inputs, const size_t* n_inputs,
                                     const nxd_pp_value_t* outputs, const size_t* n_outputs,
                                     const nxd_pp_stage_callbacks_t* callbacks, nxd_pp_t** out_pp) {
  return guard([&] {
    if (out_pp) *out_pp = nullptr;
    Context& context = unwrap(ctx);
    nxd_pp_callbacks_options_t known;
    try {
      static_cast<void>(output(out_pp, "out_pp"));
      known = read_options(options, kDefaults, "options");
    } catch (const Error& e) {
      PipelineRunner::refuse(context, e.what());
      throw;
    }
    auto handle = std::make_unique<nxd_pp>();
    handle->value = CallbackPipeline::create(context.shared_from_this(), known, inputs, n_inputs,
                                             outputs, n_outputs, callbacks);
    *out_pp = handle.release();
  });
}

nxd_status_t nxd_pp_run(nxd_pp_t* pp, int32_t training, double* out_loss) {
  return guard([&] {
    if (out_loss) *out_loss = 0;
    Pipeline& self = unwrap(pp);
    flag(training, "training");
    const double loss = self.run(training == 1);
    if (out_loss) *out_loss = loss;
  });
}

nxd_status_t nxd_pp_has_loss(nxd_pp_t* pp, int32_t* out_has) {
  return guard([&] {
    auto& out = output(out_has, "out_has");
    out = unwrap(pp).has_loss() ? 1 : 0;
  });
}

nxd_status_t nxd_pp_get_schedule(nxd_pp_t* pp, nxd_pp_schedule_t** out_schedule) {
  return guard([&] {
    auto& out = output(out_schedule, "out_schedule");
    out = unwrap(pp).schedule();
  });
}

nxd_status_t nxd_pp_get_buffer_bytes(nxd_pp_t* pp, uint64_t* out_bytes) {
  return guard([&] {
    auto& out = output(out_bytes, "out_bytes");
    out = unwrap(pp).buffer_bytes();
  });
}

nxd_status_t nxd_pp_set_timeline(nxd_pp_t* pp, int32_t on) {
  return guard([&] {
    Pipeline& self = unwrap(pp);
    flag(on, "on");
    self.set_timeline(on == 1);
  });
}

nxd_status_t nxd_pp_write_timeline(nxd_pp_t* pp, const char* path) {
  return guard([&] { unwrap(pp).write_timeline(path); });
}

void nxd_pp_destroy(nxd_pp_t* pp) {
  const Uncancelled whole_call;
  delete pp;
}
