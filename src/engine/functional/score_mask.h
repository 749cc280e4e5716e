#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace nxd {

// A mask of scores in the terms of AttentionArgs.
struct KernelMask {
  bool causal = false;
  at::Tensor key_mask;  // [batch, keys], u8, 1: keep; undefined: all
};

// Reads a mask, broadcast to [batch, heads, queries, keys]: bool, where true means keep, or one
// that is added to scores. Has a value where it hides the same keys from all queries and heads, or
// besides these all keys behind a query, of which the last sees the last. A mask that is added has
// to be 0 or at most -1e9, for then the weight is 0 in any dtype, and leave a key to each query;
// and it is a constant, on the CPU.
std::optional<KernelMask> kernel_mask(const at::Tensor& mask, int64_t batch, int64_t queries,
                                      int64_t keys);

}  // namespace nxd
