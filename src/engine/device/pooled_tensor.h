#pragma once

#include <ATen/core/Tensor.h>

namespace nxd {

// An uninitialised tensor in C order whose memory comes from the kernels' pool and goes back to it.
// Layers make their results with it, so that a training step asks the system for nothing.
at::Tensor pooled_empty(at::IntArrayRef sizes, at::ScalarType dtype);

// The same with the sizes and dtype of another tensor; on the meta device for one that is there.
at::Tensor pooled_empty_like(const at::Tensor& like);

}  // namespace nxd
