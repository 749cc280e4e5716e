#pragma once

#include <vector>

#include "engine/device/recorded_node.h"

namespace nxd {

// Runs a node's operator or function on the CPU. Inputs are in the order of the node's; results are
// as many as were recorded. An error says which call of the step it was, since it comes long after
// the call was recorded.
std::vector<at::Tensor> replay_node(const RecordedNode& node, size_t index,
                                    const std::vector<at::Tensor>& inputs);

}  // namespace nxd
