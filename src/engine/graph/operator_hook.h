#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace nxd {

// Sees the operators that its thread calls, also those that operators and our own functions call,
// before autograd does.
class OperatorObserver {
 public:
  virtual ~OperatorObserver() = default;
  // Takes the place of the call: the arguments are on the stack, and the results shall be.
  virtual void call_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack) = 0;
};

// Runs the operator; on the meta device by a shape function where libtorch has none. UNSUPPORTED
// for an operator that has neither.
void run_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// Makes an observer this thread's for a scope. It sees nothing while the thread has no
// CallTracer.
class ObservingScope {
 public:
  explicit ObservingScope(OperatorObserver& observer);
  ~ObservingScope();
  ObservingScope(const ObservingScope&) = delete;
  ObservingScope& operator=(const ObservingScope&) = delete;

 private:
  OperatorObserver* outer_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace nxd
