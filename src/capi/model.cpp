// nxd/model.h: models.
#include "capi/engine_handles.h"
#include "engine/models/model_factory.h"

using namespace nxd;

namespace {

const nxd_model_options_t kDefaults = NXD_MODEL_OPTIONS_INIT;

}  // namespace

nxd_status_t nxd_model_options_init(nxd_model_options_t* options, size_t size) {
  return engine_guard([&] { init_options(options, size, kDefaults, "options"); });
}

nxd_status_t nxd_model_create(nxd_context_t* ctx, const char* config_json,
                              const nxd_model_options_t* options, nxd_module_t** out_model) {
  return engine_guard([&] {
    auto& out = output(out_model, "out_model");
    const auto known = read_options(options, kDefaults, "options");
    out = new_handle(
        create_model(unwrap(ctx, "ctx"), unwrap_text(config_json, "config_json"), known));
  });
}

nxd_status_t nxd_model_from_pretrained(nxd_context_t* ctx, const char* directory,
                                       const nxd_model_options_t* options,
                                       nxd_module_t** out_model) {
  return engine_guard([&] {
    auto& out = output(out_model, "out_model");
    const auto known = read_options(options, kDefaults, "options");
    out = new_handle(
        model_from_pretrained(unwrap(ctx, "ctx"), unwrap_text(directory, "directory"), known));
  });
}

nxd_status_t nxd_model_get_step_flops(nxd_module_t* model, int64_t batch, int64_t sequence,
                                      double* out_flops) {
  return engine_guard([&] {
    auto& out = output(out_flops, "out_flops");
    out = step_flops(unwrap(model, "model"), batch, sequence);
  });
}
