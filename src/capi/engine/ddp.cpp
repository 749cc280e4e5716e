// Section 15 of nxd.h: data parallelism over a module.
#include "capi/engine/unwrap.h"
#include "engine/training/module_data_parallel.h"

using namespace nxd;

namespace {

const nxd_ddp_options_t kDefaults = NXD_DDP_OPTIONS_INIT;

}  // namespace

nxd_status_t nxd_ddp_create(nxd_module_t* root, const nxd_ddp_options_t* options,
                            nxd_ddp_t** out_ddp) {
  return engine_guard([&] {
    auto& out = output(out_ddp, "out_ddp");
    Module& self = unwrap(root, "root");
    const auto known = read_options(options, kDefaults, "options");
    auto handle = std::make_unique<nxd_ddp>();
    handle->owner = self.shared_from_this();
    handle->value = std::make_shared<ModuleDataParallel>(self.shared_from_this(), known);
    out = handle.release();
  });
}
