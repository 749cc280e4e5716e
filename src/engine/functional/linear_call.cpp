#include "engine/functional/linear_call.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "engine/ops/collectives.h"
#include "engine/ops/compute.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

using Input = ParallelLinearPlan::Input;
using Output = ParallelLinearPlan::Output;

// Each layer of core has exchanges on one side; a layer with none is a column layer of one rank.
bool is_row(const ParallelLinearPlan& plan) { return plan.output != Output::kAsIs; }

LinearCallOptions options_of(const ParallelLinearPlan& plan) {
  LinearCallOptions options;
  options.sequence_parallel =
      plan.input == Input::kGatherSequence || plan.output == Output::kReduceScatterSequence;
  options.sequence_dim = plan.dim;
  options.transposed_weight = plan.weights_in_out;
  options.reduce_dtype = plan.context->reduce_dtype();
  options.exchanges = plan.input != Input::kAsIs || is_row(plan);
  return options;
}

int64_t out_features(const ParallelLinearPlan& plan, const at::Tensor& weight) {
  return weight.size(plan.weights_in_out ? 1 : 0);
}

// A result of the layer: in exchanged memory where the ranks sum it in place.
at::Tensor result(const ParallelLinearPlan& plan, at::IntArrayRef sizes, at::ScalarType dtype,
                  bool is_sum) {
  const bool in_place = is_sum && dtype == plan.exchanged_dtype(dtype);
  return in_place ? exchanged_empty(*plan.group, sizes, dtype) : pooled_empty(sizes, dtype);
}

std::vector<int64_t> sizes_of_y(const ParallelLinearPlan& plan, const at::Tensor& x,
                                const at::Tensor& weight) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = out_features(plan, weight);
  const auto dim = static_cast<size_t>(plan.dim);
  if (plan.input == Input::kGatherSequence) sizes[dim] *= plan.group->size();
  if (plan.output == Output::kReduceScatterSequence) {
    check_divides(*plan.group, "reduce_scatter", sizes[dim], plan.dim);
    sizes[dim] /= plan.group->size();
  }
  return sizes;
}

}  // namespace

std::vector<at::Tensor> linear_forward(const ParallelLinearPlan& plan, const at::Tensor& x,
                                       at::ArrayRef<at::Tensor> weights,
                                       const std::vector<at::Tensor>& biases) {
  LinearArrays arrays{array_of(x)};
  std::vector<at::Tensor> ys;
  for (size_t i = 0; i < weights.size(); ++i) {
    ys.push_back(result(plan, sizes_of_y(plan, x, weights[i]), x.scalar_type(),
                        plan.output == Output::kReduce));
    LinearWeight w{array_of(weights[i]), array_of(ys.back())};
    if (biases[i].defined()) w.bias = array_of(biases[i]);
    arrays.weights.push_back(std::move(w));
  }
  if (is_row(plan)) {
    run_alike(*plan.group, "linear", RowLinearForward(*plan.group, arrays, options_of(plan)));
  } else {
    run_alike(*plan.group, "linear", ColumnLinearForward(*plan.group, arrays, options_of(plan)));
  }
  return ys;
}

LinearBackward::LinearBackward(const ParallelLinearPlan& plan, at::Tensor x,
                               at::ArrayRef<at::Tensor> weights, std::vector<at::Tensor> dys)
    : plan_(plan), x_(std::move(x)), weights_(weights.vec()), dys_(std::move(dys)) {}

std::unique_ptr<LinearBackward::Pass> LinearBackward::begin(const at::Tensor& dx, bool reads_x) {
  LinearArrays arrays{array_of(x_)};
  for (size_t i = 0; i < weights_.size(); ++i) {
    arrays.weights.push_back({array_of(weights_[i]), array_of(dys_[i])});
  }
  if (dx.defined()) arrays.grad_x = array_of(dx);
  auto pass = std::make_unique<Pass>();
  const auto start = [&](auto& plan, auto& inputs) {
    pass->calls.emplace(*plan_.group, "linear", plan->collectives());
    pass->calls->attempt([&] {
      plan->allocate();
      inputs = plan->start(*pass->calls);
    });
  };
  if (is_row(plan_)) {
    pass->row.emplace(*plan_.group, arrays, options_of(plan_));
    start(pass->row, pass->row_inputs);
  } else {
    pass->column.emplace(*plan_.group, arrays, options_of(plan_), reads_x);
    start(pass->column, pass->column_inputs);
  }
  return pass;
}

at::Tensor LinearBackward::start(bool wants_dx, bool makes_weights) {
  if (wants_dx) {
    dx_ = result(plan_, x_.sizes(), x_.scalar_type(), plan_.input == Input::kCopy);
  }
  pass_ = begin(dx_, makes_weights);
  return dx_;
}

Product LinearBackward::weight_product(const Pass& pass, size_t index) const {
  return pass.row ? pass.row->weight_product(pass.row_inputs)
                  : pass.column->weight_product(index, pass.column_inputs);
}

at::Tensor LinearBackward::weight_gradient(size_t index, at::Tensor sum) {
  if (!pass_) pass_ = begin({}, true);
  const Product product = weight_product(*pass_, index);
  if (!sum.defined()) {
    at::Tensor gradient = pooled_empty(weights_[index].sizes(), x_.scalar_type());
    write_product(product, array_of(gradient));
    return gradient;
  }
  write_product(product, array_of(sum), nullptr, true);
  torch::autograd::impl::bump_version(sum);
  return {};
}

void LinearBackward::finish() {
  if (pass_->row) {
    pass_->row->finish(*pass_->calls);
  } else {
    pass_->column->finish(*pass_->calls);
  }
  dx_.reset();
  // A row layer's pass stays for gradients that come later: what they read is gathered already. A
  // column layer would keep the gathered x.
  if (pass_->column) pass_.reset();
}

}  // namespace nxd
