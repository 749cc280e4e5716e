#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "engine/device/recorded_node.h"

namespace nxd {

// The result of a node that is a product of matrices in f32 or bf16, by the library's kernels; none
// for any other, which libtorch computes. The BLAS that Debian installs by default takes tens of
// times as long.
std::optional<at::Tensor> replay_product(const RecordedNode& node,
                                         const std::vector<at::Tensor>& inputs);

}  // namespace nxd
