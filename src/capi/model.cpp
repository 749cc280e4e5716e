// nxd/model.h: models.
#include "capi/engine_handles.h"
#include "engine/models/model_factory.h"
#include "engine/models/torchscript_module.h"

using namespace nxd;

namespace {

const nxd_model_options_t kModelDefaults = NXD_MODEL_OPTIONS_INIT;

LayerContext root_place(const nxd_model_options_t* options, nxd_context_t* ctx) {
  const auto known = read_options(options, kModelDefaults, "options");
  const bool slices = flag(known.sequence_parallel, "options.sequence_parallel");
  return LayerContext::make(unwrap(ctx, "ctx"), "", known.dtype, known.device, slices);
}

}  // namespace

nxd_status_t nxd_model_options_init(nxd_model_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kModelDefaults, "options"); });
}

nxd_status_t nxd_model_create(nxd_context_t* ctx, const char* config_json,
                              const nxd_model_options_t* options, nxd_module_t** out_model) {
  return guard([&] {
    auto& out = output(out_model, "out_model");
    const LayerContext at = root_place(options, ctx);
    out = new_handle(create_model(at, unwrap_text(config_json, "config_json")));
  });
}

nxd_status_t nxd_model_from_pretrained(nxd_context_t* ctx, const char* directory,
                                       const nxd_model_options_t* options,
                                       nxd_module_t** out_model) {
  return guard([&] {
    auto& out = output(out_model, "out_model");
    const LayerContext at = root_place(options, ctx);
    out = new_handle(model_from_pretrained(at, unwrap_text(directory, "directory")));
  });
}

nxd_status_t nxd_model_from_torchscript(nxd_context_t* ctx, const char* path,
                                        nxd_module_t** out_module) {
  return guard([&] {
    auto& out = output(out_module, "out_module");
    const auto& context = unwrap(ctx, "ctx");
    out = new_handle(load_torchscript(context, unwrap_text(path, "path")));
  });
}

nxd_status_t nxd_model_save_torchscript(nxd_module_t* root, const char* path) {
  return guard([&] {
    Module& self = unwrap(root, "root");
    save_torchscript(self, unwrap_text(path, "path"));
  });
}

nxd_status_t nxd_module_get_output_count(nxd_module_t* module, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap(module, "module").output_paths().size();
  });
}

nxd_status_t nxd_module_get_output_path(nxd_module_t* module, size_t index, const char** out_path) {
  return guard([&] {
    auto& out = output(out_path, "out_path");
    const auto& paths = unwrap(module, "module").output_paths();
    check_argument(index < paths.size(), "index: expected less than ", paths.size(),
                   ", the outputs of the last forward, got ", index);
    out = paths[index].c_str();
  });
}

nxd_status_t nxd_model_get_step_flops(nxd_module_t* model, int64_t batch, int64_t sequence,
                                      double* out_flops) {
  return guard([&] {
    auto& out = output(out_flops, "out_flops");
    out = step_flops(unwrap(model, "model"), batch, sequence);
  });
}
