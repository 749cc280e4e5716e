#pragma once

#include <torch/csrc/autograd/engine.h>

namespace nxd {

// True if a backward pass from these edges computes on the recorded device: a graph of tensors on
// the CPU may lead there by a move.
bool leads_to_device(const torch::autograd::edge_list& roots);

// The engine of a backward pass from these edges that runs on the calling thread alone. libtorch
// hands nodes of devices other than the CPU to threads of its own, on which callbacks must not run
// and the recorder would not see the calls as this thread's.
torch::autograd::Engine& engine_for(const torch::autograd::edge_list& roots);

}  // namespace nxd
