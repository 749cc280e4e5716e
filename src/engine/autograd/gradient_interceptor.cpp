#include "engine/autograd/gradient_interceptor.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace nxd {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

thread_local const InterceptionScope* innermost_scope = nullptr;

// Lives in the accumulator that it is given.
struct ArrivalHook : torch::autograd::FunctionPreHook {
  explicit ArrivalHook(const Node& accumulator)
      : accumulator_(dynamic_cast<const torch::autograd::AccumulateGrad&>(accumulator)) {}

  variable_list operator()(const variable_list& grads) override {
    const InterceptionScope* scope = innermost_scope;
    if (!scope) return grads;
    at::Tensor grad = grads[0];
    for (; scope; scope = scope->outer()) {
      grad = scope->interceptor().arrive(accumulator_.variable, std::move(grad));
    }
    return {grad};
  }

  const torch::autograd::AccumulateGrad& accumulator_;
};

}  // namespace

bool GradientInterceptor::any_holds_back(const at::Tensor& leaf) {
  for (const InterceptionScope* scope = innermost_scope; scope; scope = scope->outer()) {
    if (scope->interceptor().holds_back(leaf)) return true;
  }
  return false;
}

InterceptionScope::InterceptionScope(GradientInterceptor& interceptor) noexcept
    : interceptor_(interceptor), outer_(std::exchange(innermost_scope, this)) {}

InterceptionScope::~InterceptionScope() { innermost_scope = outer_; }

const InterceptionScope* InterceptionScope::innermost() noexcept { return innermost_scope; }

HeldNode watched_accumulator(const at::Tensor& leaf) {
  HeldNode accumulator = torch::autograd::impl::grad_accumulator(leaf);
  check_internal(accumulator != nullptr, "a frozen leaf has no accumulator");
  const auto& hooks = std::as_const(*accumulator).pre_hooks();
  const bool watched = std::any_of(hooks.begin(), hooks.end(), [](const auto& hook) {
    return dynamic_cast<const ArrivalHook*>(hook.get()) != nullptr;
  });
  if (!watched) accumulator->add_pre_hook(std::make_unique<ArrivalHook>(*accumulator));
  return accumulator;
}

}  // namespace nxd
