#include "engine/models/torchscript_casts.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <string>

#include "core/base/log.h"

namespace nxd {
namespace {

namespace jit = torch::jit;

bool asks_for_casts(const jit::Block& block) {
  for (const jit::Node* node : block.nodes()) {
    for (const jit::Block* inner : node->blocks()) {
      if (asks_for_casts(*inner)) return true;
    }
    if (node->kind() != c10::prim::Enter) continue;
    const auto type = node->input(0)->type()->cast<c10::ClassType>();
    const std::string name = type && type->name() ? type->name()->qualifiedName() : "";
    if (name.find("autocast_mode.autocast") != std::string::npos) return true;
  }
  return false;
}

}  // namespace

void warn_of_casts(const jit::Module& script) {
  for (const jit::Module& each : script.modules()) {
    for (const jit::Method& method : each.get_methods()) {
      const jit::GraphFunction* const function = jit::tryToGraphFunction(method.function());
      if (!function || !asks_for_casts(*function->graph()->block())) continue;
      const auto& name = each.type()->name();
      log(NXD_LOG_WARN, name ? name->name() : "TorchScript",
          ": torch.autocast in its code has no effect: operators run in the dtypes that they are ",
          "given");
      return;
    }
  }
}

}  // namespace nxd
