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

#include "engine/models/torchscript_operators.h"
#include "engine/models/torchscript_placement.h"

namespace nxd {

// The name of the method that is a module's forward: recurrent layers of PyTorch have two, of which
// the first takes a tensor, the other packed sequences. "" for a module without one.
std::string forward_name(const torch::jit::Module& script);

// The implementation of kScriptAttention for code that libtorch runs within a forward, such as that
// of a task which is forked.
void run_attention(torch::jit::Stack& stack);

// The code of a TorchScript module's forward, in which calls of submodules, and of operators that
// draw, are made by whoever runs it. All else is libtorch's interpreter's: operators, conditions,
// loops, functions. Other methods of the module are part of the code, as they may call submodules,
// too.
//
// A call is handed out where its inputs are tensors, flags, numbers or None, and its result has a
// fixed number of tensors or None, in tuples or alone. Any other one, such as that of a submodule
// that takes a list, is the interpreter's. None is handed out where the code assigns attributes, or
// changes tensors, lists and dictionaries in them that are neither parameters nor buffers: that
// would be done while the code is traced, and not when the trace is run. Gradients of embeddings
// are dense, as optimizers and reductions take them.
class TorchscriptForward {
 public:
  using Path = std::vector<std::string>;  // names from the module down
  struct Hooks {
    // Makes the call of callees()[callee]; an undefined tensor stands for None.
    std::function<std::vector<at::Tensor>(size_t callee, const std::vector<at::Tensor>& inputs,
                                          size_t n_outputs)>
        call;
    // mode: of mode_paths()[mode] the module whose training flag says whether it is on; none: the
    // code does.
    std::function<at::Tensor(const ScriptDropout& dropout, std::optional<size_t> mode)> drop;
    std::function<at::Tensor(const ScriptAttention& attention)> attend;
    std::function<at::Tensor(const ScriptDraw& draw, const at::Tensor& values)> draw;
  };

  explicit TorchscriptForward(const torch::jit::Module& script);

  // The submodule of each call that is handed out.
  const std::vector<Path>& callees() const { return callees_; }
  // Modules whose modes dropouts follow.
  const std::vector<Path>& mode_paths() const { return mode_paths_; }
  // Modules whose modes the code asks for otherwise: a trace has what it does in the modes of then.
  const std::vector<Path>& branch_paths() const { return branch_paths_; }
  // All that is run here, functions in their places.
  const torch::jit::Graph& graph() const { return *graph_; }

  // arguments: the module first. device: where tensors are made that the code makes anywhere;
  // values: where those of the module lie, if it has any. An error of a hook comes out as it was.
  c10::IValue run(std::vector<c10::IValue> arguments, const Hooks& hooks, at::Device device,
                  std::optional<at::Device> values);

 private:
  void inline_methods();
  void hand_out_calls();
  void hand_out(torch::jit::Node* call, Path path, size_t n_outputs);
  int64_t mode_index(const torch::jit::Value* value);
  void hand_out_dropouts();
  void hand_out_recurrences();
  void hand_out_attentions();
  void hand_out_draws();
  void hand_out_integer_draws();
  void find_modes();

  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<Path> callees_, mode_paths_, branch_paths_;
  PlacedConstants constants_;
  torch::jit::Code code_;
};

}  // namespace nxd
