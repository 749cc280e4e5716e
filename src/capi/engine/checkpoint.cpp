// Section 17 of nxd.h: recomputation.
#include "capi/engine/unwrap.h"
#include "engine/module/model.h"
#include "engine/module/recomputation.h"

using namespace nxd;

namespace {

std::vector<std::string> layers_of(const Module& root) {
  const auto* model = dynamic_cast<const Model*>(&root);
  check_argument(model != nullptr, "n_names: expected at least 1, as ", root.class_name(),
                 " is no built-in model whose layers are known");
  return {model->transformer_layer_class()};
}

}  // namespace

nxd_status_t nxd_apply_checkpoint(nxd_module_t* root, const char* const* names, size_t n_names,
                                  int32_t on) {
  return engine_guard([&] {
    Module& self = unwrap(root, "root");
    check_array(names, n_names, "names");
    flag(on, "on");
    std::vector<std::string> chosen;
    for (size_t i = 0; i < n_names; ++i) {
      chosen.push_back(unwrap_text(names[i], text("names[", i, "]").c_str()));
    }
    set_recomputation(self, n_names == 0 ? layers_of(self) : chosen, on == 1);
  });
}
