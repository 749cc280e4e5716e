#include "engine/graph/operator_hook.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "core/base/error.h"
#include "engine/device/argument_checks.h"
#include "engine/device/operator_arguments.h"
#include "engine/device/recorded_operator.h"
#include "engine/device/shape_functions.h"
#include "engine/device/shape_trial.h"
#include "engine/graph_node.h"
#include "engine/operator_library.h"
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

bool is_differentiable(const at::Tensor& result) {
  return result.defined() && (result.is_floating_point() || result.is_complex());
}

// Runs what gives the results' shapes; these have a gradient as an operator's have.
template <class Give>
void give_shapes(Give&& give, bool only_first_has_gradient, bool with_autograd,
                 torch::jit::Stack& stack) {
  const bool needs_grad = with_autograd && at::GradMode::is_enabled() &&
                          any_tensor(stack, [](const at::Tensor& t) { return t.requires_grad(); });
  {
    const at::NoGradGuard no_grad;
    give();
  }
  if (!needs_grad) return;
  bool is_first = true;
  replace_tensors(stack, [&](const at::Tensor& result) {
    const bool has_gradient = std::exchange(is_first, false) || !only_first_has_gradient;
    if (!has_gradient || !is_differentiable(result)) return result;
    at::Tensor out = result;
    torch::autograd::create_gradient_edge(out, hold(std::make_unique<ShapeOnly>()));
    return out;
  });
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

// True if the operator writes to nothing but its first argument, which it gives.
bool is_in_place(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return schema.returns().size() == 1 && is_written(schema.returns()[0]) &&
         is_written(arguments.at(0)) &&
         std::none_of(arguments.begin() + 1, arguments.end(), &is_written);
}

// Gives the shapes of an operator that libtorch cannot run here, if a trial tells them. One that
// gives its result in another argument is left to the operator that calls it, if any. A trial would
// draw random bits.
bool try_shapes(const c10::OperatorHandle& op, bool with_autograd, torch::jit::Stack& stack) {
  const bool writes = op.schema().is_mutable();
  if ((writes && !is_in_place(op.schema())) || recorded_operator(op).is_effect) return false;
  const c10::IValue first = stack.at(0);
  bool is_known = false;
  const auto give = [&] {
    is_known = give_shapes_of_trial(op, stack);
    if (is_known && writes) stack.assign(1, first);
  };
  give_shapes(give, false, with_autograd, stack);
  return is_known;
}

// Without tensors it may be the device that an operator makes one on.
bool is_without_data(const torch::jit::Stack& stack) {
  return any_tensor(stack, [](const at::Tensor& t) { return t.is_meta(); }) ||
         std::any_of(stack.begin(), stack.end(), [](const c10::IValue& argument) {
           return argument.isDevice() && argument.toDevice().is_meta();
         });
}

void below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  const bool with_autograd = keys.has_any(c10::autograd_dispatch_keyset);
  if (!is_without_data(stack)) return op.redispatchBoxed(keys, &stack);
  check_shapes(op, stack);
  if (const ShapeFunction* function = find_shape_function(op)) {
    return give_shapes([&] { function->give(stack); }, function->only_first_has_gradient,
                       with_autograd, stack);
  }
  const torch::jit::Stack arguments = stack;
  try {
    op.redispatchBoxed(keys, &stack);
  } catch (const c10::Error& error) {
    if (!lacks_shape_function(error)) throw;
    stack = arguments;
    if (!try_shapes(op, with_autograd, stack)) throw;
  }
}

void observe(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  on_own_arguments(op.schema().arguments().size(), stack,
                   [&](torch::jit::Stack& own) { observer_of_thread->call_operator(op, own); });
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

// On the first trace of a process.
void register_fallback() {
  static OperatorLibrary hook;
  static std::once_flag once;
  std::call_once(once, [] {
    hook.open(kKey, "_").fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
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
