#include "engine/functional/parallel_linear_op.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "core/tensor_parallel/stacked_parts.h"
#include "engine/autograd/deferred_gradients.h"
#include "engine/autograd/gradients.h"
#include "engine/functional/linear_call.h"
#include "engine/ops/autocast.h"
#include "engine/ops/collectives.h"
#include "engine/ops/compute.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

using Input = ParallelLinearPlan::Input;
using Output = ParallelLinearPlan::Output;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Values that the forward leaves to the backward besides tensors.
struct LinearRecord : torch::CustomClassHolder {
  ParallelLinearPlan plan;
  std::vector<bool> has_bias;  // per weight
};

// ---- On tensors without memory of their own, recorded or traced ones, and with plain kernels: the
// same products and exchanges by operators of tensors.

at::Tensor forward_one(const ParallelLinearPlan& plan, const at::Tensor& in, const at::Tensor& w,
                       const at::Tensor& bias) {
  const bool partial = plan.output != Output::kAsIs;
  const at::ScalarType dtype = in.scalar_type();
  const at::ScalarType product_dtype = partial ? plan.exchanged_dtype(dtype) : dtype;
  at::Tensor y = matrix_product(*plan.context, in, false, w, !plan.weights_in_out, product_dtype,
                                partial ? at::Tensor() : bias);
  if (!partial) return y;
  if (plan.output == Output::kReduce) {
    all_reduce_in_place(*plan.group, y);
  } else {
    y = reduce_scatter(*plan.group, y, plan.dim);
  }
  if (bias.defined()) y.add_(bias.to(product_dtype));
  return cast(*plan.context, y, dtype);
}

// Sum over the weights of dy_i W_i, moved back to where x came from.
at::Tensor input_gradient(const ParallelLinearPlan& plan, const variable_list& dys,
                          at::ArrayRef<at::Tensor> weights) {
  const at::ScalarType dtype = weights[0].scalar_type();
  const bool exchanged = plan.input != Input::kAsIs;
  const at::ScalarType sums = exchanged ? plan.exchanged_dtype(dtype) : dtype;
  at::Tensor dx = sum_of_products(*plan.context, dys, weights, plan.weights_in_out,
                                  weights.size() > 1 ? partial_sum_dtype(dtype) : sums);
  if (exchanged) dx = cast(*plan.context, dx, sums);
  if (plan.input == Input::kCopy) all_reduce_in_place(*plan.group, dx);
  if (plan.input == Input::kGatherSequence) dx = reduce_scatter(*plan.group, dx, plan.dim);
  return cast(*plan.context, dx, dtype);
}

// The input of several weights' products, which enters once, when the first of them is made.
class EnteredInput {
 public:
  EnteredInput(const ParallelLinearPlan& plan, at::Tensor x) : plan_(plan), x_(std::move(x)) {}

  const at::Tensor& get() {
    if (x_.defined()) entered_ = input_in_region(plan_, std::exchange(x_, {}));
    return entered_;
  }

 private:
  ParallelLinearPlan plan_;
  at::Tensor x_, entered_;
};

// The gradient of [out, in] weights is dy^T x, of [in, out] weights x^T dy. From the second
// microbatch on the product adds to the gradient that is there, and nothing is left for autograd to
// add.
at::Tensor weight_product(const ParallelLinearPlan& plan, const at::Tensor& dy, const at::Tensor& x,
                          at::Tensor sum) {
  const at::Tensor& a = plan.weights_in_out ? x : dy;
  const at::Tensor& b = plan.weights_in_out ? dy : x;
  if (!sum.defined()) return matrix_product(*plan.context, a, true, b, false, x.scalar_type());
  add_matrix_product(*plan.context, a, true, b, false, sum);
  torch::autograd::impl::bump_version(sum);
  return {};
}

variable_list reference_gradients(const c10::intrusive_ptr<LinearRecord>& record,
                                  const variable_list& saved, const variable_list& grads,
                                  bool wants_dx, const std::vector<bool>& wants_weight) {
  const ParallelLinearPlan& plan = record->plan;
  variable_list dys;
  for (const at::Tensor& grad : grads) {
    dys.push_back(plan.output == Output::kReduceScatterSequence
                      ? all_gather(*plan.group, grad, plan.dim)
                      : grad);
  }
  variable_list result(1 + dys.size());
  if (wants_dx) {
    result[0] = input_gradient(plan, dys, at::ArrayRef<at::Tensor>(saved).slice(1));
  }
  const auto in = std::make_shared<EnteredInput>(plan, saved[0]);
  for (size_t i = 0; i < dys.size(); ++i) {
    if (!wants_weight[i]) continue;
    result[1 + i] = weight_gradient(saved[1 + i], [record, in, dy = dys[i]](at::Tensor sum) {
      return weight_product(record->plan, dy, in->get(), std::move(sum));
    });
  }
  return result;
}

// ---- On tensors with memory.

bool has_memory(const ParallelLinearPlan& plan, const at::Tensor& x) {
  return x.is_cpu() && use_fused(*plan.context, x);
}

variable_list gradients(const ParallelLinearPlan& plan, const variable_list& saved,
                        const variable_list& grads, bool wants_dx,
                        const std::vector<bool>& wants_weight) {
  const auto weights = at::ArrayRef<at::Tensor>(saved).slice(1);
  const auto pass = std::make_shared<LinearBackward>(plan, saved[0], weights, grads);
  bool makes_weights = false;
  for (size_t i = 0; i < weights.size(); ++i) {
    makes_weights = makes_weights || (wants_weight[i] && !puts_off_gradient(weights[i]));
  }
  variable_list result(1 + weights.size());
  result[0] = pass->start(wants_dx, makes_weights);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!wants_weight[i]) continue;
    result[1 + i] = weight_gradient(
        weights[i], [pass, i](at::Tensor sum) { return pass->weight_gradient(i, std::move(sum)); });
  }
  pass->finish();
  return result;
}

struct ParallelLinears : torch::autograd::Function<ParallelLinears> {
  // parameters: the weights, then the biases there are.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, at::TensorList parameters,
                               const c10::intrusive_ptr<LinearRecord>& record) {
    const ParallelLinearPlan& plan = record->plan;
    const size_t n_weights = record->has_bias.size();
    ctx->saved_data["record"] = c10::IValue::make_capsule(record);
    variable_list saved{x};
    saved.insert(saved.end(), parameters.begin(), parameters.begin() + n_weights);
    ctx->save_for_backward(saved);
    variable_list biases(n_weights), outputs;
    size_t next_bias = n_weights;
    for (size_t i = 0; i < n_weights; ++i) {
      if (record->has_bias[i]) biases[i] = parameters[next_bias++];
    }
    if (has_memory(plan, x)) {
      return linear_forward(plan, x, at::ArrayRef<at::Tensor>(saved).slice(1), biases);
    }
    const at::Tensor in = input_in_region(plan, x);
    for (size_t i = 0; i < n_weights; ++i) {
      outputs.push_back(forward_one(plan, in, parameters[i], biases[i]));
    }
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto record =
        c10::static_intrusive_pointer_cast<LinearRecord>(ctx->saved_data["record"].toCapsule());
    const ParallelLinearPlan& plan = record->plan;
    const variable_list saved = ctx->get_saved_variables();
    // As operators of tensors alone the products are recorded.
    if (plan.group->size() > 1 || has_memory(plan, saved[0])) check_unrecorded_pass("linear");
    const bool wants_dx = ctx->needs_input_grad(0);
    std::vector<bool> wants_weight;
    variable_list dbiases;
    for (size_t i = 0; i < grads.size(); ++i) {
      if (record->has_bias[i]) dbiases.push_back(sum_rows(grads[i]));
      wants_weight.push_back(ctx->needs_input_grad(1 + i));
    }
    variable_list result = has_memory(plan, saved[0])
                               ? gradients(plan, saved, grads, wants_dx, wants_weight)
                               : reference_gradients(record, saved, grads, wants_dx, wants_weight);
    result.insert(result.end(), dbiases.begin(), dbiases.end());
    result.emplace_back();
    return result;
  }
};

}  // namespace

at::ScalarType ParallelLinearPlan::exchanged_dtype(at::ScalarType dtype) const {
  return to_scalar_type(nxd::exchanged_dtype(to_nxd_dtype(dtype), context->reduce_dtype()));
}

at::Tensor input_in_region(const ParallelLinearPlan& plan, const at::Tensor& x) {
  return plan.input == ParallelLinearPlan::Input::kGatherSequence
             ? all_gather(*plan.group, x, plan.dim)
             : x;
}

variable_list parallel_linears(const ParallelLinearPlan& plan, const at::Tensor& x,
                               const std::vector<at::Tensor>& weights,
                               const std::vector<at::Tensor>& biases) {
  auto record = c10::make_intrusive<LinearRecord>();
  record->plan = plan;
  if (plan.group->size() == 1) {
    record->plan.input = Input::kAsIs;
    record->plan.output = Output::kAsIs;
  }
  variable_list parameters;
  for (const at::Tensor& weight : weights) parameters.push_back(cast_lower(weight));
  for (const at::Tensor& bias : biases) {
    record->has_bias.push_back(bias.defined());
    if (bias.defined()) parameters.push_back(cast_lower(bias));
  }
  return ParallelLinears::apply(cast_lower(x), at::TensorList(parameters), record);
}

at::Tensor parallel_linear(const ParallelLinearPlan& plan, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& bias) {
  return parallel_linears(plan, x, {w}, {bias})[0];
}

}  // namespace nxd
