#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace nxd {

// Runs an operator, which may write to its arguments, where libtorch treats views wrongly:
// - After a write to its base a view's history is stale until someone asks for it. The check of
//   tensors that are written to does not ask, and rejects such a view as a leaf that requires a
//   gradient.
// - On the recorded device a result that is saved for the gradient forgets that it is a view, and
//   reads as all of its base. A view there is given the values of the operator that writes nothing.
// - A view there that is given for a result keeps its sizes, and becomes unreadable where libtorch
//   writes others to it. Such a call is rejected.
void run_on_views(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace nxd
