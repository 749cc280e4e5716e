// Section 15 of nxd.h: training.
#include "capi/engine/unwrap.h"
#include "engine/training/adamw.h"
#include "engine/training/finish_gradients.h"

using namespace nxd;

namespace {

const nxd_finish_options_t kFinishDefaults = NXD_FINISH_OPTIONS_INIT;
const nxd_adamw_options_t kAdamwDefaults = NXD_ADAMW_OPTIONS_INIT;

Optimizer& unwrap_optimizer(nxd_optimizer_t* optimizer) {
  return *unwrap(optimizer, "optimizer").value;
}

}  // namespace

nxd_status_t nxd_finish_options_init(nxd_finish_options_t* options, size_t size) {
  return engine_guard(
      [&] { init_options(options, size, kFinishDefaults, sizeof kFinishDefaults, "options"); });
}

nxd_status_t nxd_finish_gradients(nxd_module_t* root, const nxd_finish_options_t* options,
                                  double* out_norm) {
  return engine_guard([&] {
    if (out_norm) *out_norm = 0;
    Module& self = unwrap(root, "root");
    const double norm = finish_gradients(
        self, read_options(options, kFinishDefaults, sizeof kFinishDefaults, "options"));
    if (out_norm) *out_norm = norm;
  });
}

nxd_status_t nxd_adamw_options_init(nxd_adamw_options_t* options, size_t size) {
  return engine_guard(
      [&] { init_options(options, size, kAdamwDefaults, sizeof kAdamwDefaults, "options"); });
}

nxd_status_t nxd_adamw_create(nxd_module_t* root, const nxd_adamw_options_t* options,
                              nxd_optimizer_t** out_optimizer) {
  return engine_guard([&] {
    auto& out = output(out_optimizer, "out_optimizer");
    Module& self = unwrap(root, "root");
    const auto known = read_options(options, kAdamwDefaults, sizeof kAdamwDefaults, "options");
    auto handle = std::make_unique<nxd_optimizer>();
    handle->value = std::make_unique<AdamW>(self.shared_from_this(), known);
    out = handle.release();
  });
}

nxd_status_t nxd_optimizer_step(nxd_optimizer_t* optimizer) {
  return engine_guard([&] { unwrap_optimizer(optimizer).step(); });
}

nxd_status_t nxd_optimizer_set_learning_rate(nxd_optimizer_t* optimizer, double rate) {
  return engine_guard([&] { unwrap_optimizer(optimizer).set_learning_rate(rate); });
}

nxd_status_t nxd_optimizer_get_learning_rate(nxd_optimizer_t* optimizer, double* out_rate) {
  return engine_guard([&] {
    auto& out = output(out_rate, "out_rate");
    out = unwrap_optimizer(optimizer).learning_rate();
  });
}

void nxd_optimizer_destroy(nxd_optimizer_t* optimizer) { delete optimizer; }
