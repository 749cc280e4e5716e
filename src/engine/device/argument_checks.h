#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace nxd {

// Rejects arguments, on the meta device, whose shapes the CPU rejects and the operator's shape
// function does not.
void check_shapes(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

}  // namespace nxd
