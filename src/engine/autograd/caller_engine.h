#pragma once

#include <torch/csrc/autograd/engine.h>

#include <vector>

namespace nxd {

// The engine of a backward pass from these tensors that runs on the calling thread alone. libtorch
// hands nodes of devices other than the CPU to threads of its own, on which callbacks must not run
// and the recorder would not see the calls as this thread's.
torch::autograd::Engine& engine_for(const std::vector<at::Tensor>& outputs);

}  // namespace nxd
