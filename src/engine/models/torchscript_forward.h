#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace nxd {

// The code of a TorchScript module's forward, in which calls of submodules are made by whoever runs
// it. All else is libtorch's interpreter's: operators, conditions, loops, functions. Other methods
// of the module are part of the code, as they may call submodules, too.
//
// A call is handed out where its inputs are tensors, or None, and its result has a fixed number of
// tensors, in tuples or alone. Any other one, such as that of a submodule that takes a flag, is the
// interpreter's.
class TorchscriptForward {
 public:
  // Makes the call of callees()[callee]; an undefined input stands for None.
  using CallSubmodule = std::function<std::vector<at::Tensor>(
      size_t callee, const std::vector<at::Tensor>& inputs, size_t n_outputs)>;

  // Nothing where no call can be handed out, or where the code assigns attributes: these would be
  // assigned while the code is traced, and not when the trace is run.
  static std::unique_ptr<TorchscriptForward> make(const torch::jit::Module& script);

  // Names from the module down to the submodule, for each call.
  const std::vector<std::vector<std::string>>& callees() const { return callees_; }
  std::shared_ptr<torch::jit::Graph> copy_graph() const { return graph_->copy(); }

  // arguments: the module first. An error of a submodule's call comes out as it was.
  c10::IValue run(std::vector<c10::IValue> arguments, const CallSubmodule& call) const;

 private:
  TorchscriptForward() = default;

  void inline_methods();
  void hand_out(torch::jit::Node* call, std::vector<std::string> path, size_t n_outputs);

  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<std::vector<std::string>> callees_;
  torch::jit::Code code_;
};

}  // namespace nxd
