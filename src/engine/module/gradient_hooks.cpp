#include "engine/module/gradient_hooks.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "engine/autograd/gradient_interceptor.h"
#include "engine/autograd/gradients.h"
#include "engine/module/parameter.h"

namespace nxd {

// The accumulator lives only as long as someone holds it, and the hook lives in the accumulator.
struct GradientHooks::State {
  Hook user, reducer;
  HeldNode accumulator;
};

namespace {

struct PostHook : torch::autograd::FunctionPostHook {
  // Takes the gradients that have arrived, which the engine still holds.
  using Function = std::function<void(const torch::autograd::variable_list& arrived)>;

  explicit PostHook(Function function) : function_(std::move(function)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    function_(inputs);
    return outputs;
  }

  Function function_;
};

// A caller's hook may write to the gradient.
void make_gradient_own(const at::Tensor& leaf, const torch::autograd::variable_list& arrived) {
  const at::Tensor& grad = leaf.grad();
  const bool is_arrived =
      grad.defined() && !arrived.empty() && arrived[0].defined() && arrived[0].is_alias_of(grad);
  own_gradient(leaf, is_arrived ? 2 : 1);
}

}  // namespace

GradientHooks::~GradientHooks() {
  if (!state_) return;
  state_->user = nullptr;
  state_->reducer = nullptr;
}

void GradientHooks::check_can_be_set() const {
  check_state(state_ || parameter_.tensor().requires_grad(), "parameter ",
              parameter_.canonical_name(), ": a frozen parameter takes no gradient hook");
}

GradientHooks::State& GradientHooks::state() {
  if (state_) return *state_;
  check_can_be_set();
  state_ = std::make_shared<State>();
  hang();
  return *state_;
}

void GradientHooks::hang() {
  at::Tensor& tensor = parameter_.tensor();
  const bool trainable = tensor.requires_grad();
  tensor.set_requires_grad(true);  // a frozen leaf has no accumulator
  state_->accumulator = torch::autograd::impl::grad_accumulator(tensor);
  state_->accumulator->add_post_hook(std::make_unique<PostHook>(
      [weak = std::weak_ptr<State>(state_), &parameter = parameter_](const auto& arrived) {
        const auto alive = weak.lock();
        if (!alive || GradientInterceptor::any_holds_back(parameter.tensor())) return;
        // A hook may replace itself, and lives until it has returned.
        if (const Hook user = alive->user) {
          make_gradient_own(parameter.tensor(), arrived);
          user(parameter);
        }
        if (const Hook reducer = alive->reducer) reducer(parameter);
      }));
  tensor.set_requires_grad(trainable);
}

void GradientHooks::set_user(Hook hook) {
  if (hook || state_) state().user = std::move(hook);
}

void GradientHooks::set_reducer(Hook hook) {
  if (hook || state_) state().reducer = std::move(hook);
}

void GradientHooks::call_user() {
  const Hook user = state_ ? state_->user : Hook();
  if (!user) return;
  own_gradient(parameter_.tensor());
  user(parameter_);
}

bool GradientHooks::has_reducer() const { return state_ && state_->reducer; }

void GradientHooks::move_to_tensor() {
  if (state_) hang();
}

}  // namespace nxd
