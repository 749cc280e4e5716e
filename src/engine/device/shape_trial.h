#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/Exception.h>

namespace nxd {

// The shapes of an operator's results, for one that has no shape function and reads no values: it
// runs on the CPU, on zeros and on ones. Takes arguments on the meta device and leaves results
// there; false, with the stack as it was, if it fails, or if values decide on the shapes.
bool give_shapes_of_trial(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// True of an error that the meta device makes, where an operator has no kernel for it. Other errors
// are those of the arguments.
bool lacks_shape_function(const c10::Error& error);

}  // namespace nxd
