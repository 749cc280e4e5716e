#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace nxd {

// The order of a fused projection's features.
enum class QkvOrder {
  kByPart,  // [3, heads, head_dim]: the queries of all heads, then their keys, then their values
  kByHead   // [heads, 3, head_dim]: of each head its query, key and value
};

// Queries, keys and values [., ., heads, head_dim] of x [., ., 3 * heads * head_dim], without a
// copy; their gradients come back as one tensor.
std::array<at::Tensor, 3> split_qkv(const at::Tensor& x, int64_t head_dim, QkvOrder order);

}  // namespace nxd
