#include "engine/module/tape.h"

#include <ATen/ATen.h>

#include "engine/autograd/gradients.h"
#include "engine/dtype.h"
#include "engine/tensor/call_tracer.h"

namespace nxd {

Tape::Tape(Module& module, const Module::Tensors& inputs, size_t n_outputs)
    : context_(module.context()), class_name_(module.class_name()) {
  for (const at::Tensor& input : inputs) {
    at::Tensor leaf = input.defined() ? input.detach() : input;
    if (leaf.defined() && leaf.is_floating_point()) leaf.set_requires_grad(true);
    inputs_.push_back(leaf);
  }
  at::AutoGradMode record(true);
  outputs_ = module.call(inputs_, n_outputs);
}

Module::Tensors Tape::outputs() const {
  Module::Tensors result;
  for (const at::Tensor& output : outputs_) {
    result.push_back(output.defined() ? output.detach() : output);
  }
  return result;
}

void Tape::check(const Module::Tensors& grad_outputs) const {
  check_not_tracing("nxd_tape_backward");
  check_state(!used_, class_name_, ": the tape was used already");
  check_argument(grad_outputs.size() == outputs_.size(), "num_outputs: expected ", outputs_.size(),
                 ", got ", grad_outputs.size());
  const auto described = [](const at::Tensor& x) {
    return text("shape ", x.sizes(), ", dtype ", dtype_text(x.scalar_type()), " and device ",
                x.device().str());
  };
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const at::Tensor &output = outputs_[i], &grad = grad_outputs[i];
    if (!output.defined() || !output.requires_grad() || !grad.defined()) continue;
    const std::string expected = described(output), given = described(grad);
    check_argument(given == expected, "grad_outputs[", i, "]: expected ", expected, ", got ",
                   given);
  }
}

Module::Tensors Tape::backward(const Module::Tensors& grad_outputs) {
  check(grad_outputs);
  Module::Tensors roots, grads;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const at::Tensor &output = outputs_[i], &grad = grad_outputs[i];
    if (!output.defined() || !output.requires_grad()) continue;
    roots.push_back(output);
    grads.push_back(grad.defined() ? grad.detach() : at::zeros_like(output));
  }
  used_ = true;
  if (!roots.empty()) run_backward(roots, grads, false);
  outputs_.clear();
  Module::Tensors result;
  for (at::Tensor& input : inputs_) {
    result.push_back(input.defined() && input.is_leaf() && input.requires_grad() ? input.grad()
                                                                                 : at::Tensor());
  }
  inputs_.assign(inputs_.size(), at::Tensor());
  return result;
}

}  // namespace nxd
