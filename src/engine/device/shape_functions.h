#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace nxd {

// Takes the place of an operator on the meta device.
struct ShapeFunction {
  // Takes the arguments from the stack and leaves the results there, without autograd.
  void (*give)(torch::jit::Stack& stack);
  // Only the first result has a gradient; else all that are floats.
  bool only_first_has_gradient = false;
};

// For operators that libtorch cannot run there without Python; null for others.
const ShapeFunction* find_shape_function(const c10::OperatorHandle& op);

// True if the operator's result, or its shape, depends on its arguments' values.
bool reads_values(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

// Floating-point operations of a matrix product or convolution, of the arguments' and results'
// shapes; 0 for other operators, also those that call these.
double product_flops(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                     const torch::jit::Stack& results);

}  // namespace nxd
