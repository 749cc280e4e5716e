#pragma once

#include <ATen/core/Tensor.h>

#include "core/comm/process_group.h"

namespace nxd {

// An uninitialised tensor in C order whose memory comes from the kernels' pool and goes back to it.
// Layers make their results with it, so that a training step asks the system for nothing.
at::Tensor pooled_empty(at::IntArrayRef sizes, at::ScalarType dtype);

// The same with the sizes and dtype of another tensor; on its device, which has the memory.
at::Tensor pooled_empty_like(const at::Tensor& like);

// The same for what the ranks of a group are about to sum or gather: in the group's arena where
// there is one with room, so that the collective works on it in place, else in the pool. It may
// outlive the group and the context.
at::Tensor exchanged_empty(const ProcessGroup& group, at::IntArrayRef sizes, at::ScalarType dtype);

}  // namespace nxd
