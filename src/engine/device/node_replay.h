#pragma once

#include <ATen/core/stack.h>

#include <vector>

#include "engine/device/recorded_node.h"

namespace nxd {

class GraphRounding;

// Runs a node's operator or function on the CPU. Inputs are in the order of the node's; results are
// as many as were recorded. An error says which call of the step it was, since it comes long after
// the call was recorded. A rounding of null rounds to nearest.
std::vector<at::Tensor> replay_node(const RecordedNode& node, size_t index,
                                    const std::vector<at::Tensor>& inputs,
                                    GraphRounding* rounding = nullptr);

// Calls the operator of a node with these arguments, into which it puts the inputs.
std::vector<at::Tensor> call_operator(const RecordedNode& node, torch::jit::Stack arguments,
                                      const std::vector<at::Tensor>& inputs);

}  // namespace nxd
