#include "engine/nn/parallel_linear_op.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "engine/device/collectives.h"
#include "engine/device/compute.h"

namespace nxd {
namespace {

using Input = ParallelLinearPlan::Input;
using Output = ParallelLinearPlan::Output;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct PlanHolder : torch::CustomClassHolder {
  ParallelLinearPlan plan;
};

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

std::vector<int64_t> with_last(const at::Tensor& x, int64_t features) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = features;
  return sizes;
}

at::Tensor enter(const ParallelLinearPlan& plan, const at::Tensor& x) {
  return plan.input == Input::kGatherSequence ? all_gather(*plan.group, x, plan.dim) : x;
}

at::Tensor apply_forward(const ParallelLinearPlan& plan, const at::Tensor& x, const at::Tensor& w,
                         const at::Tensor& bias) {
  const at::Tensor in = enter(plan, x);
  const bool partial = plan.output != Output::kAsIs;
  const at::ScalarType dtype = x.scalar_type();
  const at::ScalarType product_dtype = partial ? partial_sum_dtype(dtype) : dtype;
  at::Tensor y = matrix_product(*plan.context, rows_of(in), false, w, true, product_dtype,
                                partial ? at::Tensor() : bias)
                     .view(with_last(in, w.size(0)));
  if (!partial) return y;
  y = plan.output == Output::kReduce ? all_reduce(*plan.group, y)
                                     : reduce_scatter(*plan.group, y, plan.dim);
  if (bias.defined()) y.add_(bias.to(product_dtype));
  return y.to(dtype);
}

struct ParallelLinear : torch::autograd::Function<ParallelLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w,
                            const at::Tensor& bias, const c10::intrusive_ptr<PlanHolder>& holder) {
    ctx->saved_data["plan"] = c10::IValue::make_capsule(holder);
    ctx->saved_data["bias"] = bias.defined();
    ctx->save_for_backward({x, w});
    return apply_forward(holder->plan, x, w, bias);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto holder =
        c10::static_intrusive_pointer_cast<PlanHolder>(ctx->saved_data["plan"].toCapsule());
    const ParallelLinearPlan& plan = holder->plan;
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1];
    const at::ScalarType dtype = x.scalar_type();

    at::Tensor dbias;
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)) dbias = sum_rows(grads[0]);
    const at::Tensor dy = plan.output == Output::kReduceScatterSequence
                              ? all_gather(*plan.group, grads[0], plan.dim)
                              : grads[0];
    const at::Tensor dy_rows = rows_of(dy);

    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      const bool partial = plan.input != Input::kAsIs;
      dx = matrix_product(*plan.context, dy_rows, false, w, false,
                          partial ? partial_sum_dtype(dtype) : dtype)
               .view(with_last(dy, w.size(1)));
      if (plan.input == Input::kCopy) dx = all_reduce(*plan.group, dx);
      if (plan.input == Input::kGatherSequence) dx = reduce_scatter(*plan.group, dx, plan.dim);
      dx = dx.to(dtype);
    }
    at::Tensor dw;
    if (ctx->needs_input_grad(1)) {
      dw = matrix_product(*plan.context, dy_rows, true, rows_of(enter(plan, x)), false, dtype);
    }
    return {dx, dw, dbias, at::Tensor()};
  }
};

}  // namespace

at::Tensor parallel_linear(const ParallelLinearPlan& plan, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& bias) {
  auto holder = c10::make_intrusive<PlanHolder>();
  holder->plan = plan;
  if (plan.group->size() == 1) {
    holder->plan.input = Input::kAsIs;
    holder->plan.output = Output::kAsIs;
  }
  return ParallelLinear::apply(x, w, bias, holder);
}

}  // namespace nxd
