// nxd/model_pipeline.h: pipelines of modules.
#include "capi/engine_handles.h"
#include "capi/optimizer_handles.h"
#include "capi/pipeline_handles.h"
#include "engine/training/module_pipeline.h"

using namespace nxd;

namespace {

const nxd_pp_options_t kDefaults = NXD_PP_OPTIONS_INIT;

ModulePipeline& unwrap_pipeline(nxd_pp_t* pp) {
  check_argument(pp, "pp: expected a pipeline, got NULL");
  check_state(pp->modules != nullptr,
              "pp: expected a pipeline of modules, which nxd_pp_create makes, got one over "
              "callbacks");
  return *pp->modules;
}

const char* name_at(const std::vector<std::string>& names, size_t index) {
  check_argument(index < names.size(), "index: expected less than ", names.size(), ", got ", index);
  return names[index].c_str();
}

}  // namespace

nxd_status_t nxd_pp_options_init(nxd_pp_options_t* options, size_t size) {
  return engine_guard([&] { init_options(options, size, kDefaults, "options"); });
}

nxd_status_t nxd_pp_create(nxd_module_t* model, nxd_tensor_t* const* inputs, size_t num_inputs,
                           const nxd_pp_options_t* options, nxd_pp_t** out_pp) {
  return engine_guard([&] {
    if (out_pp) *out_pp = nullptr;
    const std::shared_ptr<Module> root = unwrap(model, "model").shared_from_this();
    nxd_pp_options_t known;
    Module::Tensors examples;
    try {
      static_cast<void>(output(out_pp, "out_pp"));
      known = read_options(options, kDefaults, "options");
      examples = unwrap_tensors(inputs, num_inputs, "inputs");
    } catch (...) {
      PipelineRunner::reject(*root->context());
      throw;
    }
    auto made = ModulePipeline::create(root, examples, known);
    Pipeline& its = made->pipeline();
    *out_pp = new nxd_pp(std::move(made), its);
  });
}

nxd_status_t nxd_pp_run_train(nxd_pp_t* pp, nxd_tensor_t* const* inputs, size_t num_inputs,
                              double* out_loss) {
  return engine_guard([&] {
    if (out_loss) *out_loss = 0;
    ModulePipeline& self = unwrap_pipeline(pp);
    const double loss = self.run_train(unwrap_tensors(inputs, num_inputs, "inputs"));
    if (out_loss) *out_loss = loss;
  });
}

nxd_status_t nxd_pp_run_eval(nxd_pp_t* pp, nxd_tensor_t* const* inputs, size_t num_inputs,
                             double* out_loss, nxd_tensor_t** outputs, size_t num_outputs) {
  return engine_guard([&] {
    if (out_loss) *out_loss = 0;
    clear_outputs(outputs, num_outputs, "outputs");
    ModulePipeline& self = unwrap_pipeline(pp);
    const auto result = self.run_eval(unwrap_tensors(inputs, num_inputs, "inputs"), num_outputs);
    if (num_outputs > 0) wrap_all(result.outputs, outputs);
    if (out_loss) *out_loss = result.loss;
  });
}

nxd_status_t nxd_pp_get_losses(nxd_pp_t* pp, double* losses, size_t cap, size_t* out_count) {
  return engine_guard([&] {
    output(out_count, "out_count");
    copy_list(unwrap_pipeline(pp).losses(), losses, cap, out_count, "losses");
  });
}

nxd_status_t nxd_pp_set_ddp(nxd_pp_t* pp, nxd_ddp_t* ddp) {
  return engine_guard([&] {
    unwrap_pipeline(pp).set_ddp(ddp ? std::weak_ptr<DataParallel>(ddp->value)
                                    : std::weak_ptr<DataParallel>());
  });
}

nxd_status_t nxd_pp_get_local_module(nxd_pp_t* pp, nxd_module_t** out_module) {
  return engine_guard([&] {
    auto& out = output(out_module, "out_module");
    out = unwrap_pipeline(pp).local_module()->borrowed_handle();
  });
}

nxd_status_t nxd_pp_get_local_module_count(nxd_pp_t* pp, size_t* out_count) {
  return engine_guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap_pipeline(pp).local_module_names().size();
  });
}

nxd_status_t nxd_pp_get_local_module_name(nxd_pp_t* pp, size_t index, const char** out_name) {
  return engine_guard([&] {
    auto& out = output(out_name, "out_name");
    out = name_at(unwrap_pipeline(pp).local_module_names(), index);
  });
}

nxd_status_t nxd_pp_get_cut_count(nxd_pp_t* pp, size_t* out_count) {
  return engine_guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap_pipeline(pp).cuts().size();
  });
}

nxd_status_t nxd_pp_get_cut(nxd_pp_t* pp, size_t index, const char** out_name) {
  return engine_guard([&] {
    auto& out = output(out_name, "out_name");
    out = name_at(unwrap_pipeline(pp).cuts(), index);
  });
}

nxd_status_t nxd_pp_get_graph_text(nxd_pp_t* pp, const char** out_text) {
  return engine_guard([&] {
    auto& out = output(out_text, "out_text");
    out = unwrap_pipeline(pp).graph_text().c_str();
  });
}

nxd_status_t nxd_pp_get_unsplit_count(nxd_pp_t* pp, size_t* out_count) {
  return engine_guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap_pipeline(pp).unsplit().size();
  });
}

nxd_status_t nxd_pp_get_unsplit_name(nxd_pp_t* pp, size_t index, const char** out_name) {
  return engine_guard([&] {
    auto& out = output(out_name, "out_name");
    out = name_at(unwrap_pipeline(pp).unsplit(), index);
  });
}
