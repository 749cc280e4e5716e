#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace nxd {

// Throws what the operator would throw on the CPU for the dtypes of its arguments, which are on the
// meta device, or for their numbers of dimensions: shape functions do not look at all of them, and
// the graph would fail later. It runs on single elements, and on none where a tensor has none, if
// its shapes follow from its tensors' alone. 16-bit floats pass where graphs are compiled, since a
// compiler may have what the CPU lacks.
void check_dtypes(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

}  // namespace nxd
