#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <string>

namespace nxd {

// An operator that draws random numbers of libtorch's own, and when.
struct RandomOperator {
  std::string name;
  bool in_training_only = false;  // as a dropout
};

// The first one that a module's code runs, if any: in its graph, from which what draws by the
// library is handed out already, in tasks that it forks, and in the methods of submodules that it
// chooses while it runs, which it calls as they are written. An operator that drops is none where
// it drops nothing.
std::optional<RandomOperator> find_random_operator(const torch::jit::Graph& graph,
                                                   const torch::jit::Module& script);

}  // namespace nxd
