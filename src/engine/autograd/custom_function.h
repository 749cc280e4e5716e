#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nxd {

// One application of a custom function, as its callbacks see it.
struct FunctionCall {
  bool in_forward = true;
  std::vector<bool> needs_grad;   // of each input
  std::vector<at::Tensor> saved;  // by forward, for backward

  // INVALID_STATE in backward.
  void save(const at::Tensor& tensor);
  // INVALID_ARGUMENT for an index that there is not.
  const at::Tensor& saved_at(size_t index) const;
  bool needs_grad_of(size_t input_index) const;
};

// The callbacks of a custom function, shared by its owner and every graph it was recorded in. Each
// gives as many results as it is asked for.
struct FunctionDefinition {
  using Tensors = std::vector<at::Tensor>;

  std::string name;
  size_t num_outputs = 1;
  std::function<Tensors(FunctionCall& call, const Tensors& inputs, size_t n_outputs)> forward;
  // Among gradients an undefined one is zero. Empty where the function is not differentiable.
  std::function<Tensors(FunctionCall& call, const Tensors& grad_outputs, size_t n_inputs)> backward;
  // Takes and gives tensors on the meta device. Empty where the function cannot be traced.
  std::function<Tensors(const Tensors& inputs, size_t n_outputs)> shape;
};

// A differentiable function made of the caller's callbacks. They run with recording off, on inputs
// that are outside of the graph, on the thread that applies or differentiates.
class CustomFunction {
 public:
  explicit CustomFunction(std::shared_ptr<const FunctionDefinition> definition)
      : definition_(std::move(definition)) {}

  std::vector<at::Tensor> apply(const std::vector<at::Tensor>& inputs, size_t n_outputs) const;

 private:
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const;

  std::shared_ptr<const FunctionDefinition> definition_;
};

}  // namespace nxd
