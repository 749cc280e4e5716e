#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace nxd {

// Gradients that the code of a graph asks for (torch.autograd.grad) are computed on the thread that
// runs it, also those of the recorded device, for which libtorch's engine has no thread.
void compute_gradients_here(torch::jit::Graph& graph);

}  // namespace nxd
