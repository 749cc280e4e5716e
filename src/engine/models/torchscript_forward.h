#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nxd {

// A dropout in the code of a TorchScript module, for one call of it.
struct ScriptDropout {
  at::Tensor input;
  double p = 0;
  bool is_on = false;        // as the code says
  bool in_place = false;     // writes to the input
  bool of_channels = false;  // drops all places of a channel, dimension 1, or none
  // The module whose mode says whether it is on, as an index of mode_paths(); none: the code does.
  std::optional<size_t> mode;
};

// The code of a TorchScript module's forward, in which calls of submodules and dropouts are made by
// whoever runs it. All else is libtorch's interpreter's: operators, conditions, loops, functions.
// Other methods of the module are part of the code, as they may call submodules, too.
//
// A call is handed out where its inputs are tensors, or None, and its result has a fixed number of
// tensors, in tuples or alone. Any other one, such as that of a submodule that takes a flag, is the
// interpreter's. None is handed out where the code assigns attributes: these would be assigned
// while the code is traced, and not when the trace is run.
class TorchscriptForward {
 public:
  using Path = std::vector<std::string>;  // names from the module down
  struct Hooks {
    // Makes the call of callees()[callee]; an undefined input stands for None.
    std::function<std::vector<at::Tensor>(size_t callee, const std::vector<at::Tensor>& inputs,
                                          size_t n_outputs)>
        call;
    std::function<at::Tensor(const ScriptDropout& dropout)> drop;
  };

  explicit TorchscriptForward(const torch::jit::Module& script);

  // The submodule of each call that is handed out.
  const std::vector<Path>& callees() const { return callees_; }
  // Modules whose modes dropouts follow.
  const std::vector<Path>& mode_paths() const { return mode_paths_; }
  // All that is run here, functions in their places.
  const torch::jit::Graph& graph() const { return *graph_; }

  // arguments: the module first. An error of a hook comes out as it was.
  c10::IValue run(std::vector<c10::IValue> arguments, const Hooks& hooks) const;

 private:
  void inline_methods();
  void hand_out_calls();
  void hand_out(torch::jit::Node* call, Path path, size_t n_outputs);
  void hand_out_dropouts();

  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<Path> callees_, mode_paths_;
  torch::jit::Code code_;
};

}  // namespace nxd
