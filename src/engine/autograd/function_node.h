#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/autograd/custom_function.h"

namespace nxd {

// One recorded application of a custom function.
class FunctionNode : public torch::autograd::Node {
 public:
  // Makes the outputs results of a new node over the inputs.
  static void attach(std::shared_ptr<const FunctionDefinition> definition,
                     const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                     const FunctionCall& call);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override;
  void release_variables() override;
  std::string name() const override { return definition_->name; }

 private:
  struct Input {
    std::vector<int64_t> shape;
    at::TensorOptions options;
  };

  FunctionNode(std::shared_ptr<const FunctionDefinition> definition, const FunctionCall& call);

  torch::autograd::variable_list run_callback(const torch::autograd::variable_list& grads);
  torch::autograd::variable_list zeros_on_meta();
  void check_gradient(const at::Tensor& grad, size_t index) const;

  std::shared_ptr<const FunctionDefinition> definition_;
  std::vector<Input> inputs_;
  std::vector<torch::autograd::SavedVariable> saved_;
  bool released_ = false;
  bool running_ = false;
};

}  // namespace nxd
