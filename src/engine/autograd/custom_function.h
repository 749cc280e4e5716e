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
  nxd_function_options_t options;
  std::string name;
  bool owns_user_data = false;  // only once the function has been made

  explicit FunctionDefinition(const nxd_function_options_t& given);
  FunctionDefinition(const FunctionDefinition&) = delete;
  FunctionDefinition& operator=(const FunctionDefinition&) = delete;
  ~FunctionDefinition();
};

// A differentiable function made of the caller's callbacks. They run with recording off, on inputs
// that are outside of the graph, on the thread that applies or differentiates.
class CustomFunction {
 public:
  explicit CustomFunction(const nxd_function_options_t& options);

  // From here on destroy is called with the last user of the definition.
  void take_user_data() { definition_->owns_user_data = true; }

  std::vector<at::Tensor> apply(const std::vector<at::Tensor>& inputs, size_t n_outputs) const;

 private:
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const;

  std::shared_ptr<FunctionDefinition> definition_;
};

void save_for_backward(nxd_function_call& call, const at::Tensor& tensor);
nxd_tensor_t* saved_tensor(nxd_function_call& call, size_t index);
bool needs_grad(const nxd_function_call& call, size_t input_index);

}  // namespace nxd
