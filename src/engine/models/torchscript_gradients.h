#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

namespace nxd {

// torch.autograd.grad, for a stack of an interpreter.
void give_gradients(torch::jit::Stack& stack);
// torch.autograd.backward and Tensor.backward.
void accumulate_gradients(torch::jit::Stack& stack);

// Gradients that the code of a graph asks for are computed on the thread that runs it, also those
// of the recorded device, for which libtorch's engine has no thread: by functions that call those
// above.
void compute_gradients_here(torch::jit::Graph& graph, void (*give)(torch::jit::Stack&),
                            void (*accumulate)(torch::jit::Stack&));

}  // namespace nxd
