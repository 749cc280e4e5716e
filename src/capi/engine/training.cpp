// Section 15 of nxd.h: training.
#include "capi/engine/unwrap.h"
#include "capi/optimizer_handles.h"
#include "engine/training/finish_gradients.h"
#include "engine/training/module_parameters.h"

using namespace nxd;

namespace {

template <class Options>
Options read(const Options* options, const Options& defaults) {
  return read_options(options, defaults, sizeof defaults, "options");
}

}  // namespace

nxd_status_t nxd_finish_gradients(nxd_module_t* root, const nxd_finish_options_t* options,
                                  double* out_norm) {
  return engine_guard([&] {
    if (out_norm) *out_norm = 0;
    Module& self = unwrap(root, "root");
    const nxd_finish_options_t defaults = NXD_FINISH_OPTIONS_INIT;
    const double norm = finish_gradients(self, read(options, defaults));
    if (out_norm) *out_norm = norm;
  });
}

nxd_status_t nxd_adamw_create(nxd_module_t* root, const nxd_adamw_options_t* options,
                              nxd_optimizer_t** out_optimizer) {
  return engine_guard([&] {
    auto& out = output(out_optimizer, "out_optimizer");
    const auto module = unwrap(root, "root").shared_from_this();
    const nxd_adamw_options_t defaults = NXD_ADAMW_OPTIONS_INIT;
    out = new_optimizer(module, std::make_shared<ModuleParameters>(module),
                        make_adamw_rule(read(options, defaults)));
  });
}

nxd_status_t nxd_sgd_create(nxd_module_t* root, const nxd_sgd_options_t* options,
                            nxd_optimizer_t** out_optimizer) {
  return engine_guard([&] {
    auto& out = output(out_optimizer, "out_optimizer");
    const auto module = unwrap(root, "root").shared_from_this();
    const nxd_sgd_options_t defaults = NXD_SGD_OPTIONS_INIT;
    out = new_optimizer(module, std::make_shared<ModuleParameters>(module),
                        make_sgd_rule(read(options, defaults)));
  });
}

nxd_status_t nxd_custom_optimizer_create(nxd_module_t* root,
                                         const nxd_custom_optimizer_options_t* options,
                                         nxd_optimizer_t** out_optimizer) {
  return engine_guard([&] {
    auto& out = output(out_optimizer, "out_optimizer");
    const auto module = unwrap(root, "root").shared_from_this();
    const nxd_custom_optimizer_options_t defaults = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;
    out = new_custom_optimizer(module, std::make_shared<ModuleParameters>(module),
                               read(options, defaults));
  });
}
