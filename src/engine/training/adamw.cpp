#include "engine/training/adamw.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>

#include "core/kernels/optimizer_kernels.h"
#include "engine/device/dtype_map.h"
#include "engine/device/pooled_tensor.h"
#include "engine/nn/module_tree.h"

namespace nxd {
namespace {

double or_default(double value, double fallback) { return value == 0 ? fallback : value; }

nxd_adamw_options_t resolve(nxd_adamw_options_t options) {
  options.learning_rate = or_default(options.learning_rate, 1e-3);
  options.beta1 = or_default(options.beta1, 0.9);
  options.beta2 = or_default(options.beta2, 0.999);
  options.eps = or_default(options.eps, 1e-8);
  for (const auto& [name, beta] :
       {std::pair<const char*, double>{"beta1", options.beta1}, {"beta2", options.beta2}}) {
    check_argument(beta >= 0 && beta < 1, name, ": expected a number of [0, 1), got ", beta);
  }
  check_argument(std::isfinite(options.eps) && options.eps >= 0,
                 "eps: expected a finite number of at least 0, got ", options.eps);
  check_argument(std::isfinite(options.weight_decay) && options.weight_decay >= 0,
                 "weight_decay: expected a finite number of at least 0, got ",
                 options.weight_decay);
  return options;
}

bool is_bf16(const at::Tensor& x) { return x.scalar_type() == at::kBFloat16; }

// The dtype that state is kept in.
at::ScalarType state_dtype(const at::Tensor& x) {
  return is_bf16(x) ? at::kFloat : x.scalar_type();
}

}  // namespace

AdamW::AdamW(const std::shared_ptr<Module>& root, const nxd_adamw_options_t& options)
    : root_(root), options_(resolve(options)) {
  set_learning_rate(options_.learning_rate);
  for (const NamedParameter& entry : named_parameters(*root)) {
    if (!entry.parameter->tensor().requires_grad()) continue;
    Slot slot;
    slot.parameter = entry.parameter;
    slots_.push_back(std::move(slot));
  }
}

void AdamW::prepare(Slot& slot) const {
  const at::Tensor& p = slot.parameter->tensor();
  if (!slot.exp_avg.defined()) {
    slot.exp_avg = pooled_empty(p.sizes(), state_dtype(p)).zero_();
    slot.exp_avg_sq = pooled_empty(p.sizes(), state_dtype(p)).zero_();
  }
  if (is_bf16(p) && !(slot.seen.is_same(p) && p._version() == slot.seen_version)) {
    if (!slot.master.defined()) slot.master = pooled_empty(p.sizes(), at::kFloat);
    slot.master.copy_(p);
  }
}

void AdamW::update_fused(Slot& slot, const at::Tensor& grad) const {
  const at::Tensor& p = slot.parameter->tensor();
  const bool copied = is_bf16(p);
  kernels::AdamwArgs args;
  args.n = p.numel();
  args.dtype = to_nxd_dtype(state_dtype(p));
  args.grad_dtype = to_nxd_dtype(grad.scalar_type());
  args.param = copied ? slot.master.data_ptr() : p.data_ptr();
  args.grad = grad.data_ptr();
  args.exp_avg = slot.exp_avg.data_ptr();
  args.exp_avg_sq = slot.exp_avg_sq.data_ptr();
  args.copy = copied ? p.data_ptr() : nullptr;
  args.lr = learning_rate_;
  args.beta1 = options_.beta1;
  args.beta2 = options_.beta2;
  args.eps = options_.eps;
  args.weight_decay = options_.weight_decay;
  args.step = slot.updates;
  kernels::adamw(args);
  // Written by other means than ATen: whatever was derived from the old value must notice.
  torch::autograd::impl::bump_version(p);
}

void AdamW::update_plain(Slot& slot, const at::Tensor& grad) const {
  at::Tensor& p = slot.parameter->tensor();
  at::Tensor value = is_bf16(p) ? slot.master : p;
  const at::Tensor g = grad.to(value.scalar_type());
  const auto n = static_cast<double>(slot.updates);
  const double correction1 = 1 - std::pow(options_.beta1, n);
  const double correction2 = 1 - std::pow(options_.beta2, n);
  value.mul_(1 - learning_rate_ * options_.weight_decay);
  slot.exp_avg.mul_(options_.beta1).add_(g, 1 - options_.beta1);
  slot.exp_avg_sq.mul_(options_.beta2).addcmul_(g, g, 1 - options_.beta2);
  const at::Tensor denominator =
      slot.exp_avg_sq.sqrt().div_(std::sqrt(correction2)).add_(options_.eps);
  value.addcdiv_(slot.exp_avg, denominator, -learning_rate_ / correction1);
  if (is_bf16(p)) p.copy_(value);
}

void AdamW::step() {
  at::NoGradGuard no_grad;
  Context& context = *root_->context();
  context.check_usable();
  for (Slot& slot : slots_) {
    at::Tensor& p = slot.parameter->tensor();
    const at::Tensor& grad = p.grad();
    if (!p.requires_grad() || !grad.defined()) continue;
    check_argument(!p.is_meta(), "parameter ", slot.parameter->canonical_name(),
                   ": has no values on the meta device");
    prepare(slot);
    ++slot.updates;
    const bool fused = !context.plain_kernels() && p.is_contiguous();
    if (fused) {
      update_fused(slot, grad.contiguous());
    } else {
      update_plain(slot, grad);
    }
    slot.seen = p;
    slot.seen_version = static_cast<uint32_t>(p._version());
  }
  context.set_step(context.step() + 1, 0);
}

}  // namespace nxd
