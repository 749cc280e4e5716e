#pragma once

#include <memory>
#include <vector>

#include "engine/module/module.h"

namespace nxd {

// Calls its children in order: the first with the inputs, each other with the one output of the
// child before it; the last gives the outputs.
class Sequential : public Module {
 public:
  explicit Sequential(std::shared_ptr<Context> context)
      : Module(std::move(context), "Sequential") {}

  bool is_leaf() const override { return false; }
  bool counts_outputs() const override {
    return !children().empty() && children().back().second->counts_outputs();
  }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;
};

// The children become "0", "1" and so on.
std::shared_ptr<Module> make_sequential(const std::shared_ptr<Context>& context,
                                        const std::vector<std::shared_ptr<Module>>& children);

}  // namespace nxd
