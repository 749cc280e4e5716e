#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace nxd {

// The shapes of an operator's results, for one that has no shape function and reads no values: it
// runs on the CPU, on zeros and on ones. Takes arguments on the meta device and leaves results
// there; false, with the stack as it was, if it fails, or if values decide on the shapes.
bool give_shapes_of_trial(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace nxd
