#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/autograd/custom_function.h"

namespace nxd {

// Handles that a callback may use but not destroy.
class BorrowedHandles {
 public:
  void add(at::Tensor tensor);
  void add_null() { pointers_.push_back(nullptr); }
  nxd_tensor_t* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }
  bool contains(const nxd_tensor_t* handle) const;

 private:
  std::deque<nxd_tensor> handles_;
  std::vector<nxd_tensor_t*> pointers_;
};

// Room for handles that a callback makes and the library takes over, whether it fails or not.
class OwnedHandles {
 public:
  explicit OwnedHandles(size_t count) : pointers_(count, nullptr) {}
  OwnedHandles(const OwnedHandles&) = delete;
  OwnedHandles& operator=(const OwnedHandles&) = delete;
  ~OwnedHandles();

  nxd_tensor_t** data() { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

  // The tensors; name is that of the array in messages. A borrowed handle, or the same one twice,
  // is rejected and not destroyed a second time; what the call saved is borrowed too. Without
  // all_required NULL gives an undefined one.
  std::vector<at::Tensor> take(const BorrowedHandles& borrowed, const nxd_function_call& call,
                               const std::string& name, bool all_required);

 private:
  std::vector<nxd_tensor_t*> pointers_;
};

// One recorded application of a custom function.
class FunctionNode : public torch::autograd::Node {
 public:
  // Makes the outputs results of a new node over the inputs.
  static void attach(std::shared_ptr<const FunctionDefinition> definition,
                     const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                     const nxd_function_call& call);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override;
  void release_variables() override;
  std::string name() const override { return definition_->name; }

 private:
  struct Input {
    std::vector<int64_t> shape;
    at::TensorOptions options;
  };

  FunctionNode(std::shared_ptr<const FunctionDefinition> definition, const nxd_function_call& call);

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
