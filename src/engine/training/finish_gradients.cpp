#include "engine/training/finish_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/phase_clock.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/optimizer_kernels.h"
#include "engine/device/compute.h"
#include "engine/device/dtype_map.h"
#include "engine/nn/module_tree.h"
#include "engine/training/gradient_buckets.h"
#include "engine/training/group_agreement.h"

namespace nxd {
namespace {

// Options with their defaults in place.
struct Plan {
  double scale = 1;
  double max_norm = 0;
  double norm_type = 2;
  nxd_reduce_t reduce = NXD_REDUCE_SUM;
  bool check_finite = true;
};

struct Groups {
  ProcessGroup *tensor, *data, *pipeline;
};

Plan resolve(const nxd_finish_options_t& options) {
  Plan plan;
  plan.scale = options.scale == 0 ? 1 : options.scale;
  plan.max_norm = options.max_norm;
  plan.norm_type = options.norm_type == 0 ? 2 : options.norm_type;
  plan.reduce = options.data_parallel_reduce;
  plan.check_finite = options.skip_nonfinite_check == 0;
  return plan;
}

// What is wrong with the options; "" for nothing.
std::string complaint(const nxd_finish_options_t& options) {
  const Plan plan = resolve(options);
  if (!std::isfinite(plan.scale)) {
    return text("scale: expected a finite number, got ", plan.scale);
  }
  if (!(plan.max_norm >= 0) || std::isinf(plan.max_norm)) {
    return text("max_norm: expected a finite number of at least 0, got ", plan.max_norm);
  }
  if (plan.norm_type != 1 && plan.norm_type != 2 &&
      !(std::isinf(plan.norm_type) && plan.norm_type > 0)) {
    return text("norm_type: expected 1, 2 or infinity, got ", plan.norm_type);
  }
  if (plan.reduce != NXD_REDUCE_SUM && plan.reduce != NXD_REDUCE_AVG) {
    return text("data_parallel_reduce: expected NXD_REDUCE_SUM or NXD_REDUCE_AVG, got ",
                plan.reduce);
  }
  return "";
}

void agree_on_options(const Groups& groups, int world_rank, const nxd_finish_options_t& options,
                      size_t parameters) {
  const std::string wrong = complaint(options);
  const Plan plan = wrong.empty() ? resolve(options) : Plan{};
  std::vector<AgreedValue> values{{"scale", plan.scale},
                                  {"max_norm", plan.max_norm},
                                  {"norm_type", plan.norm_type},
                                  {"data_parallel_reduce", static_cast<double>(plan.reduce)},
                                  {"skip_nonfinite_check", plan.check_finite ? 0.0 : 1.0}};
  agree({groups.tensor, groups.data, groups.pipeline}, world_rank, values, wrong);
  // Stages of a pipeline have parameters of their own.
  agree({groups.tensor, groups.data}, world_rank,
        {{"number of trainable parameters", static_cast<double>(parameters)}}, "");
}

std::vector<std::shared_ptr<Parameter>> trainable(const Module& root) {
  std::vector<std::shared_ptr<Parameter>> result;
  for (const NamedParameter& entry : named_parameters(root)) {
    if (entry.parameter->tensor().requires_grad()) result.push_back(entry.parameter);
  }
  return result;
}

// A parameter with its gradient, dense and in C order.
struct Held {
  std::shared_ptr<Parameter> parameter;
  at::Tensor grad;
};

// The parameters that have a gradient on any rank, with zeros where this rank has none.
std::vector<Held> hold_gradients(const std::vector<std::shared_ptr<Parameter>>& parameters,
                                 const Groups& groups) {
  std::vector<int32_t> present;
  for (const auto& parameter : parameters) {
    present.push_back(parameter->tensor().grad().defined() ? 1 : 0);
  }
  for (ProcessGroup* group : {groups.tensor, groups.data}) {
    if (group->size() == 1) continue;
    group->all_reduce(present.data(), present.data(), present.size(), NXD_DTYPE_I32,
                      NXD_REDUCE_MAX);
  }
  std::vector<Held> held;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (present[i] == 0) continue;
    at::Tensor& grad = parameters[i]->tensor().mutable_grad();
    if (!grad.defined()) {
      grad = at::zeros_like(parameters[i]->tensor().detach(), at::MemoryFormat::Contiguous);
    } else if (!grad.is_contiguous()) {
      grad = grad.contiguous();
    }
    held.push_back({parameters[i], grad.detach()});
  }
  return held;
}

// Sums over gradient groups. Groups of the same ranks are as good as one, whoever made them.
void sum_over_gradient_groups(const std::vector<Held>& held) {
  std::vector<ProcessGroup*> order;
  std::map<std::vector<int>, std::vector<at::Tensor>> tensors;
  for (const Held& entry : held) {
    ProcessGroup* group = entry.parameter->gradient_group().get();
    if (!group || group->size() == 1) continue;
    std::vector<at::Tensor>& list = tensors[group->ranks()];
    if (list.empty()) order.push_back(group);
    list.push_back(entry.grad);
  }
  for (ProcessGroup* group : order) {
    reduce_in_buckets(*group, tensors[group->ranks()], NXD_REDUCE_SUM);
  }
}

double local_norm(const Context& context, const at::Tensor& grad, double type) {
  const bool fused = use_fused(context, grad);
  const nxd_dtype_t dtype = to_nxd_dtype(grad.scalar_type());
  if (std::isinf(type)) {
    if (fused) return kernels::max_abs(dtype, grad.numel(), grad.data_ptr());
    return grad.numel() == 0 ? 0 : grad.to(at::kDouble).abs().max().item<double>();
  }
  if (type == 1) return grad.abs().sum(at::kDouble).item<double>();
  if (fused) return kernels::sum_of_squares(dtype, grad.numel(), grad.data_ptr());
  return grad.to(at::kDouble).square().sum().item<double>();
}

// Of ranks that hold the same elements one counts them; the sum over ranks has the same bits on
// all.
double norm_of(const Context& context, const std::vector<Held>& held, const Groups& groups,
               double type) {
  double total = 0;
  for (const Held& entry : held) {
    if (!entry.parameter->counts_in_norm()) continue;
    const double part = local_norm(context, entry.grad, type);
    if (std::isinf(type)) {
      total = std::isnan(part) || part > total ? part : total;
    } else {
      total += part;
    }
    if (std::isinf(type) && std::isnan(total)) break;
  }
  const nxd_reduce_t reduce = std::isinf(type) ? NXD_REDUCE_MAX : NXD_REDUCE_SUM;
  for (ProcessGroup* group : {groups.tensor, groups.pipeline}) {
    if (group->size() > 1) group->all_reduce(&total, &total, 1, NXD_DTYPE_F64, reduce);
  }
  return type == 2 ? std::sqrt(total) : total;
}

void multiply(const Context& context, const std::vector<Held>& held, double factor) {
  const PhaseScope phase(NXD_PHASE_OPTIMIZER);
  for (const Held& entry : held) {
    const at::Tensor& grad = entry.grad;
    if (use_fused(context, grad)) {
      kernels::scale(to_nxd_dtype(grad.scalar_type()), grad.numel(), grad.data_ptr(), factor,
                     grad.data_ptr());
    } else {
      grad.mul_(factor);
    }
  }
}

}  // namespace

double finish_gradients(Module& root, const nxd_finish_options_t& options) {
  at::NoGradGuard no_grad;
  const Context& context = *root.context();
  context.check_usable();
  const ParallelState& parallel = context.parallel();
  const Groups groups{parallel.group(NXD_AXIS_TENSOR).get(), parallel.group(NXD_AXIS_DATA).get(),
                      parallel.group(NXD_AXIS_PIPELINE).get()};
  const auto parameters = trainable(root);
  agree_on_options(groups, context.rank(), options, parameters.size());
  const Plan plan = resolve(options);

  const std::vector<Held> held = hold_gradients(parameters, groups);
  sum_over_gradient_groups(held);
  std::vector<at::Tensor> all;
  for (const Held& entry : held) all.push_back(entry.grad);
  reduce_in_buckets(*groups.data, all, plan.reduce);
  if (plan.scale != 1) multiply(context, held, plan.scale);

  const double norm = norm_of(context, held, groups, plan.norm_type);
  if (!std::isfinite(norm)) {
    check_state(!plan.check_finite, "rank ", context.rank(), ": the norm of the gradients is ",
                norm, "; they are left unclipped");
    return norm;
  }
  if (plan.max_norm > 0) {
    const double factor = plan.max_norm / (norm + 1e-6);
    if (factor < 1) multiply(context, held, factor);
  }
  return norm;
}

}  // namespace nxd
