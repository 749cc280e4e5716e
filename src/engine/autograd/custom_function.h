#pragma once

#include <ATen/ATen.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/tensor/tensor_handle.h"

// One application, as a callback sees it.
struct nxd_function_call {
  bool in_forward = true;
  std::vector<bool> needs_grad;  // of each input
  std::deque<nxd_tensor> saved;  // of forward; addresses stay as the list grows
};

namespace nxd {

// The callbacks of a custom function, shared by its handle and every graph it was recorded in.
struct FunctionDefinition {
  std::string name;
  size_t num_outputs = 1;
  nxd_status_t (*forward)(nxd_function_call_t* call, nxd_tensor_t* const* inputs, size_t n_inputs,
                          nxd_tensor_t** outputs, size_t n_outputs, void* user_data) = nullptr;
  // Null where the function is not differentiable, or cannot be traced.
  nxd_status_t (*backward)(nxd_function_call_t* call, nxd_tensor_t* const* grad_outputs,
                           size_t n_outputs, nxd_tensor_t** grad_inputs, size_t n_inputs,
                           void* user_data) = nullptr;
  nxd_status_t (*shape)(nxd_tensor_t* const* inputs, size_t n_inputs, nxd_tensor_t** outputs,
                        size_t n_outputs, void* user_data) = nullptr;
  void* user_data = nullptr;
  nxd_destroy_fn destroy = nullptr;  // of user_data; set once the function has been made

  FunctionDefinition() = default;
  FunctionDefinition(const FunctionDefinition&) = delete;
  FunctionDefinition& operator=(const FunctionDefinition&) = delete;
  ~FunctionDefinition();
};

// A differentiable function made of the caller's callbacks. They run with recording off, on inputs
// that are outside of the graph, on the thread that applies or differentiates.
class CustomFunction {
 public:
  explicit CustomFunction(std::shared_ptr<FunctionDefinition> definition)
      : definition_(std::move(definition)) {}

  // From here on destroy is called with the last user of the definition.
  void take_user_data(nxd_destroy_fn destroy) { definition_->destroy = destroy; }

  std::vector<at::Tensor> apply(const std::vector<at::Tensor>& inputs, size_t n_outputs) const;

 private:
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const;

  std::shared_ptr<FunctionDefinition> definition_;
};

void save_for_backward(nxd_function_call& call, const at::Tensor& tensor);
nxd_tensor_t* saved_tensor(nxd_function_call& call, size_t index);
bool needs_grad(const nxd_function_call& call, size_t input_index);

}  // namespace nxd
