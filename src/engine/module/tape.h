#pragma once

#include "engine/module/module.h"

namespace nxd {

// One run of a module, kept for one vector-Jacobian product.
class Tape {
 public:
  // Runs the module on inputs cut off from whatever was recorded of them.
  Tape(Module& module, const Module::Tensors& inputs, size_t n_outputs);

  // The results, cut off likewise.
  Module::Tensors outputs() const;

  // Fails for gradients that backward() does not take; the tape can be used afterwards.
  void check(const Module::Tensors& grad_outputs) const;
  // Adds to the gradients of the parameters and gives those of the inputs, undefined where an input
  // has none. Undefined gradients of outputs count as zero.
  Module::Tensors backward(const Module::Tensors& grad_outputs);

  const Context& context() const { return *context_; }
  size_t input_count() const { return inputs_.size(); }

 private:
  std::shared_ptr<Context> context_;
  std::string class_name_;
  Module::Tensors inputs_;
  Module::Tensors outputs_;
  bool used_ = false;
};

}  // namespace nxd
