#include "engine/module/parameter.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "core/layout/shard_fill.h"
#include "core/optim/step_outcome.h"
#include "engine/autograd/gradient_interceptor.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {

// The accumulator lives only as long as someone holds it, and the hook lives in the accumulator.
struct Parameter::HookState {
  GradHook hook, reducer_hook;
  HeldNode accumulator;
};

namespace {

at::Tensor draw(const RandomSite& site, const ShardSpec& shard, const Initializer& init,
                at::ScalarType dtype) {
  at::Tensor out = pooled_empty(shard.local_shape(), dtype == at::kDouble ? dtype : at::kFloat);
  const nxd_dtype_t drawn = to_nxd_dtype(out.scalar_type());
  switch (init.kind) {
    case Initializer::Kind::kConstant: out.fill_(init.a); break;
    case Initializer::Kind::kNormal:
      fill_normal(site, shard, drawn, out.data_ptr(), init.a, init.b);
      break;
    case Initializer::Kind::kUniform:
      fill_uniform(site, shard, drawn, out.data_ptr(), init.a, init.b);
      break;
  }
  if (init.zero_row >= 0) {
    const bool split_rows = shard.dim() == 0;
    const int64_t first = split_rows ? shard.ranges().front().begin : 0;
    const int64_t row = init.zero_row - first;
    if (row >= 0 && row < out.size(0)) out.select(0, row).zero_();
  }
  return out.scalar_type() == dtype ? out : pooled_empty(out.sizes(), dtype).copy_(out);
}

}  // namespace

Parameter::Parameter(std::string canonical_name, ShardSpec shard, Initializer initializer,
                     at::ScalarType dtype, bool meta)
    : canonical_name_(std::move(canonical_name)),
      shard_(std::move(shard)),
      initializer_(initializer),
      parameter_handle_{this} {
  at::NoGradGuard no_grad;
  handle_.value =
      meta ? at::empty(shard_.local_shape(), at::TensorOptions().dtype(dtype).device(at::kMeta))
           : pooled_empty(shard_.local_shape(), dtype);
  handle_.value.set_requires_grad(true);
}

Parameter::~Parameter() {
  if (!hook_) return;
  hook_->hook = nullptr;
  hook_->reducer_hook = nullptr;
}

void Parameter::initialize(uint64_t seed, const std::string& canonical_name) {
  canonical_name_ = canonical_name;
  seed_ = seed;
  if (!has_value()) return;
  at::NoGradGuard no_grad;
  mark_whole();
  tensor().copy_(
      draw(RandomSite(seed, canonical_name_), shard_, initializer_, tensor().scalar_type()));
}

void Parameter::materialize() {
  if (has_value()) return;
  replace_value(
      draw(RandomSite(seed_, canonical_name_), shard_, initializer_, tensor().scalar_type()));
}

void Parameter::materialize(const std::function<void(at::Tensor& value)>& fill) {
  if (has_value()) return;
  const at::NoGradGuard no_grad;
  at::Tensor value = pooled_empty(shard_.local_shape(), tensor().scalar_type());
  fill(value);
  if (!has_value()) replace_value(std::move(value));  // fill may have given one by other means
}

void Parameter::check_releasable() const {
  check_state(!has_reducer(), "parameter ", canonical_name_,
              ": a ddp has its values or gradients; destroy that one, and its optimizers, first");
}

void Parameter::release() {
  check_releasable();
  forget_gradient();
  if (has_value()) replace_value(at::empty(tensor().sizes(), tensor().options().device(at::kMeta)));
}

std::string Parameter::torn() const {
  return torn_step_ < 0 ? "" : torn_text(canonical_name_, torn_step_);
}

void Parameter::check_whole() const {
  if (torn_step_ >= 0) fail(NXD_ERROR_INVALID_STATE, torn());
}

at::Tensor Parameter::initial_whole(uint64_t seed) const {
  return draw(RandomSite(seed, canonical_name_), ShardSpec::replicated(shard_.shape()),
              initializer_, tensor().scalar_type());
}

at::Tensor Parameter::slice_of(const at::Tensor& whole) const {
  check_argument(whole.is_floating_point(), "parameter ", canonical_name_,
                 ": expected a whole of a float dtype, got ", c10::toString(whole.scalar_type()));
  check_argument(whole.sizes() == at::IntArrayRef(shard_.shape()), "parameter ", canonical_name_,
                 ": expected the whole shape ", shape_text(shard_.shape()), ", got ",
                 whole.sizes());
  if (shard_.dim() < 0) return whole;
  std::vector<at::Tensor> parts;
  for (const ShardSpec::Range& range : shard_.ranges()) {
    parts.push_back(whole.narrow(shard_.dim(), range.begin, range.end - range.begin));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, shard_.dim());
}

void Parameter::set_whole(const at::Tensor& whole) {
  at::NoGradGuard no_grad;
  const at::Tensor own = slice_of(whole);
  if (has_value()) {
    tensor().copy_(own);
    mark_whole();
  } else {
    materialize([&](at::Tensor& value) { value.copy_(own); });
  }
}

namespace {

struct PostHook : torch::autograd::FunctionPostHook {
  explicit PostHook(std::function<void()> function) : function_(std::move(function)) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& outputs,
      const torch::autograd::variable_list& /*inputs*/) override {
    function_();
    return outputs;
  }

  std::function<void()> function_;
};

}  // namespace

void Parameter::check_takes_hook() const {
  check_state(hook_ || tensor().requires_grad(), "parameter ", canonical_name_,
              ": a frozen parameter takes no gradient hook");
}

Parameter::HookState& Parameter::hook_state() {
  if (hook_) return *hook_;
  check_takes_hook();
  hook_ = std::make_shared<HookState>();
  hang_hooks();
  return *hook_;
}

void Parameter::hang_hooks() {
  const bool trainable = tensor().requires_grad();
  tensor().set_requires_grad(true);  // a frozen leaf has no accumulator
  hook_->accumulator = torch::autograd::impl::grad_accumulator(tensor());
  hook_->accumulator->add_post_hook(
      std::make_unique<PostHook>([weak = std::weak_ptr<HookState>(hook_), this] {
        const auto alive = weak.lock();
        if (!alive || GradientInterceptor::any_holds_back(tensor())) return;
        if (alive->hook) alive->hook(*this);
        if (alive->reducer_hook) alive->reducer_hook(*this);
      }));
  tensor().set_requires_grad(trainable);
}

void Parameter::replace_value(at::Tensor value) {
  value.set_requires_grad(tensor().requires_grad());
  handle_.value = std::move(value);
  mark_whole();
  if (hook_) hang_hooks();
}

void Parameter::set_grad_hook(GradHook hook) {
  if (hook || hook_) hook_state().hook = std::move(hook);
}

void Parameter::set_reducer_hook(GradHook hook) {
  if (hook || hook_) hook_state().reducer_hook = std::move(hook);
}

bool Parameter::has_reducer() const { return hook_ && hook_->reducer_hook; }

void Parameter::forget_gradient() {
  tensor().mutable_grad().reset();
  main_grad_.reset();
}

}  // namespace nxd
