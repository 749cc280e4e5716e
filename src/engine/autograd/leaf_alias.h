#pragma once

#include <ATen/core/Tensor.h>

namespace nxd {

// The leaf's memory as a tensor that is computed from it: operators may write to it in place, as
// they may not to a leaf that requires a gradient. The leaf then has what was written.
at::Tensor alias_of_leaf(const at::Tensor& leaf);

}  // namespace nxd
