#include "engine/graph/operator_hook.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "core/base/error.h"
#include "engine/autograd/graph_node.h"
#include "engine/device/operator_arguments.h"
#include "engine/device/shape_functions.h"
#include "engine/tensor/call_tracer.h"

namespace nxd {
namespace {

// The highest of the keys that libtorch leaves to others; no tensor has it, so that calls meet it
// only on threads that include it.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local OperatorObserver* observer_of_thread = nullptr;
// Set by run_operator for the call that it makes.
thread_local bool is_run = false;

// Stands in autograd's graph where a shape function took an operator's place.
struct ShapeOnly : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    fail(NXD_ERROR_INVALID_STATE, "backward: tensors of a trace have no values");
  }
};

bool any_tensor(const torch::jit::Stack& stack, bool (*holds)(const at::Tensor&)) {
  bool found = false;
  for_each_tensor(stack, [&](const at::Tensor& t) { found = found || (t.defined() && holds(t)); });
  return found;
}

void run_shape_function(const ShapeFunction& function, bool with_autograd,
                        torch::jit::Stack& stack) {
  const bool needs_grad = with_autograd && at::GradMode::is_enabled() &&
                          any_tensor(stack, [](const at::Tensor& t) { return t.requires_grad(); });
  {
    const at::NoGradGuard no_grad;
    function.give(stack);
  }
  if (!needs_grad) return;
  bool is_first = true;
  replace_tensors(stack, [&](const at::Tensor& result) {
    const bool has_gradient =
        (std::exchange(is_first, false) || !function.only_first_has_gradient) && result.defined() &&
        at::isFloatingType(result.scalar_type());
    if (!has_gradient) return result;
    at::Tensor out = result;
    torch::autograd::create_gradient_edge(out, hold(std::make_unique<ShapeOnly>()));
    return out;
  });
}

void below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  const bool with_autograd = keys.has_any(c10::autograd_dispatch_keyset);
  const ShapeFunction* function = find_shape_function(op);
  if (function && any_tensor(stack, [](const at::Tensor& t) { return t.is_meta(); })) {
    return run_shape_function(*function, with_autograd, stack);
  }
  op.redispatchBoxed(keys, &stack);
}

// An interpreter's stack has values of its own below the arguments, which are no part of the call.
void observe(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto first = static_cast<ptrdiff_t>(stack.size() - op.schema().arguments().size());
  torch::jit::Stack own(std::make_move_iterator(stack.begin() + first),
                        std::make_move_iterator(stack.end()));
  stack.resize(static_cast<size_t>(first));
  observer_of_thread->call_operator(op, own);
  std::move(own.begin(), own.end(), std::back_inserter(stack));
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  keys = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  if (!observer_of_thread || !is_tracing()) {
    op.redispatchBoxed(keys, stack);
  } else if (std::exchange(is_run, false)) {
    below(op, keys, *stack);
  } else {
    observe(op, *stack);
  }
}

// On the first trace of a process. Never destroyed, for threads may be tracing when the process
// ends; in static memory, where leak checkers see what it owns.
void register_fallback() {
  alignas(torch::Library) static unsigned char place[sizeof(torch::Library)];
  static std::once_flag once;
  std::call_once(once, [] {
    auto* library = new (place) torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  });
}

}  // namespace

void run_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  is_run = true;
  op.callBoxed(&stack);
}

ObservingScope::ObservingScope(OperatorObserver& observer)
    : outer_((register_fallback(), std::exchange(observer_of_thread, &observer))), include_(kKey) {}

ObservingScope::~ObservingScope() { observer_of_thread = outer_; }

}  // namespace nxd
