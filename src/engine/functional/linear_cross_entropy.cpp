#include "engine/functional/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/kernels/cross_entropy.h"
#include "core/kernels/elementwise.h"
#include "engine/ops/autocast.h"
#include "engine/ops/collectives.h"
#include "engine/ops/compute.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

using Input = ParallelLinearPlan::Input;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "linear_cross_entropy";

struct LinearCrossEntropyRecord : torch::CustomClassHolder {
  ParallelLinearPlan plan;
  LossTargets targets;
  double divisor = 1;
  // Found where autograd is listening: inside of a custom function it records nothing.
  bool wants_dx = false;
  bool wants_dweight = false;
  bool wants_dbias = false;
};

// The pass over the blocks. The gradients are those of the reduced loss.
class Blocks {
 public:
  // bias: of the weight's dtype, or undefined.
  Blocks(const LinearCrossEntropyRecord& record, const at::Tensor& in, const at::Tensor& weight,
         const at::Tensor& bias)
      : record_(record),
        x_(in.reshape({-1, in.size(-1)}).contiguous()),
        weight_(weight),
        bias_(bias.defined() ? bias.to(at::kFloat) : bias),
        dtype_(weight.scalar_type()),
        rows_(kernels::logit_block_rows(x_.size(0), weight.size(0))),
        grad_row_((record.targets.valid.to(at::kFloat) / record.divisor)),
        losses_(at::empty({x_.size(0)}, at::kFloat)) {
    const at::ScalarType wide = partial_sum_dtype(dtype_);
    const bool summed = record.plan.input != Input::kAsIs;
    if (record.wants_dx) {
      dx_ = summed ? exchanged_empty(*record.plan.group, x_.sizes(), wide)
                   : pooled_empty(x_.sizes(), dtype_);
    }
    // Sums of several blocks are rounded once.
    if (record.wants_dweight) {
      dweight_ = pooled_empty(weight.sizes(), x_.size(0) > rows_ ? wide : dtype_);
      if (x_.size(0) == 0) dweight_.zero_();
    }
    if (record.wants_dbias) dbias_ = at::zeros({weight.size(0)}, at::kFloat);
    for (int64_t first = 0; first < x_.size(0); first += rows_) {
      run(first, std::min(rows_, x_.size(0) - first));
    }
  }

  at::Tensor loss() const {
    const at::Tensor& valid = record_.targets.valid;
    return at::where(valid, losses_, at::zeros_like(losses_)).sum() / record_.divisor;
  }

  // As the rank's own x: summed over ranks, and scattered where x is a part.
  at::Tensor dx(at::IntArrayRef in_sizes) const {
    if (!dx_.defined()) return dx_;
    const ParallelLinearPlan& plan = record_.plan;
    at::Tensor dx = dx_.view(in_sizes);
    if (plan.input == Input::kCopy) all_reduce_in_place(*plan.group, dx);
    if (plan.input == Input::kGatherSequence) dx = reduce_scatter(*plan.group, dx, plan.dim);
    return cast(*plan.context, dx, dtype_);
  }

  at::Tensor dweight() const {
    return dweight_.defined() ? cast(*record_.plan.context, dweight_, dtype_) : dweight_;
  }

  at::Tensor dbias() const { return dbias_.defined() ? dbias_.to(dtype_) : dbias_; }

 private:
  void run(int64_t first, int64_t rows) {
    const Context& context = *record_.plan.context;
    const at::Tensor x = x_.narrow(0, first, rows);
    LossTargets targets = record_.targets;
    targets.ids = targets.ids.narrow(0, first, rows);
    at::Tensor logits = matrix_product(context, x, false, weight_, true, at::kFloat);
    if (bias_.defined()) logits.add_(bias_);
    logits = hide_padding(*record_.plan.group, targets.smoothing.vocabulary, logits);
    const RowLosses block = fused_row_losses(*record_.plan.group, kName, logits, targets);
    losses_.narrow(0, first, rows).copy_(block.loss);
    if (!record_.wants_dx && !record_.wants_dweight && !record_.wants_dbias) return;
    at::Tensor dlogits = dtype_ == at::kFloat ? logits : pooled_empty(logits.sizes(), dtype_);
    fused_logits_gradient(logits, targets, block, grad_row_.narrow(0, first, rows), dlogits);
    logits.reset();
    if (dbias_.defined()) dbias_.add_(dlogits.sum(0, /*keepdim=*/false, at::kFloat));
    if (dx_.defined()) {
      at::Tensor dx = dx_.narrow(0, first, rows);
      matrix_product_into(context, dlogits, false, weight_, false, dx);
    }
    if (!dweight_.defined()) return;
    if (first == 0) {
      matrix_product_into(context, dlogits, true, x, false, dweight_);
    } else {
      add_matrix_product(context, dlogits, true, x, false, dweight_);
    }
  }

  const LinearCrossEntropyRecord& record_;
  at::Tensor x_, weight_, bias_;
  at::ScalarType dtype_;
  int64_t rows_;
  at::Tensor grad_row_, losses_;
  at::Tensor dx_, dweight_, dbias_;
};

at::Tensor scaled(const at::Tensor& x, double factor) {
  if (!x.defined() || factor == 1) return x;
  at::Tensor y = pooled_empty_like(x);
  kernels::scale(to_nxd_dtype(x.scalar_type()), x.numel(), x.data_ptr(), factor, y.data_ptr());
  return y;
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const c10::optional<at::Tensor>& bias,
                            const c10::intrusive_ptr<LinearCrossEntropyRecord>& record) {
    const at::Tensor in = input_in_region(record->plan, x);
    const Blocks blocks(*record, in, weight, bias.value_or(at::Tensor()));
    // Neither x nor a parameter is read again, so that they may change before backward.
    ctx->save_for_backward({blocks.dx(in.sizes()), blocks.dweight(), blocks.dbias()});
    return blocks.loss();
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (at::GradMode::is_enabled()) {
      fail(NXD_ERROR_UNSUPPORTED, kName,
           ": its gradient cannot be differentiated again (create_graph)");
    }
    const variable_list saved = ctx->get_saved_variables();
    const double factor = grads[0].item<double>();
    return {scaled(saved[0], factor), scaled(saved[1], factor), scaled(saved[2], factor),
            at::Tensor()};
  }
};

void check_inputs(const ParallelLinearPlan& plan, const at::Tensor& x, const at::Tensor& weight,
                  const at::Tensor& bias, const at::Tensor& labels) {
  const auto check = [&](bool holds, const std::string& message) {
    check_with_group(*plan.group, holds, kName, message);
  };
  const auto dtype = weight.scalar_type();
  check(weight.dim() == 2 && weight.size(0) > 0 &&
            (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16),
        text("weight: expected [vocabulary / ranks, features] of f32, f64 or bf16, got ",
             c10::toString(dtype), " of shape ", weight.sizes()));
  check(x.dim() >= 1 && x.size(-1) == weight.size(1) && takes_input(dtype, x.scalar_type()),
        text("x: expected ", c10::toString(dtype), " of shape [..., ", weight.size(1),
             "], as the weight's rows, got ", c10::toString(x.scalar_type()), " of shape ",
             x.sizes()));
  check(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)),
        bias.defined() ? text("bias: expected [", weight.size(0), "], got shape ", bias.sizes())
                       : std::string());
  std::vector<int64_t> tokens(x.sizes().begin(), x.sizes().end() - 1);
  if (plan.input == Input::kGatherSequence) {
    check(plan.dim >= 0 && plan.dim < x.dim() - 1,
          text("sequence_dim: expected a dimension of x before the last, or -1, got ", plan.dim,
               " for the shape ", x.sizes()));
    tokens[static_cast<size_t>(plan.dim)] *= plan.group->size();
  }
  check(labels.sizes() == at::IntArrayRef(tokens),
        text("labels: expected the whole x's shape without the features, ", at::IntArrayRef(tokens),
             ", got ", labels.sizes()));
}

at::Tensor loss_of(const ParallelLinearPlan& plan, const at::Tensor& given_x,
                   const at::Tensor& given_weight, const at::Tensor& given_bias,
                   const at::Tensor& labels, const LossFormula& formula) {
  check_inputs(plan, given_x, given_weight, given_bias, labels);
  const at::Tensor x = cast_lower(given_x), weight = cast_lower(given_weight);
  const at::Tensor bias = given_bias.defined() ? cast_lower(given_bias) : given_bias;
  if (!use_fused(*plan.context, x) || formula.reduction == NXD_REDUCTION_NONE) {
    at::Tensor logits = parallel_linear(plan, x, weight, bias);
    if (formula.vocab_size > 0) logits = hide_padding(*plan.group, formula.vocab_size, logits);
    return parallel_cross_entropy(*plan.context, plan.group, logits, labels, formula);
  }
  auto record = c10::make_intrusive<LinearCrossEntropyRecord>();
  record->plan = plan;
  if (plan.group->size() == 1) record->plan.input = Input::kAsIs;
  record->targets = loss_targets(plan.group, kName, labels, weight.size(0), formula);
  record->divisor = loss_divisor(record->targets, formula.reduction);
  record->wants_dx = at::GradMode::is_enabled() && x.requires_grad();
  record->wants_dweight = at::GradMode::is_enabled() && weight.requires_grad();
  record->wants_dbias = at::GradMode::is_enabled() && bias.defined() && bias.requires_grad();
  return LinearCrossEntropy::apply(
      x, weight, bias.defined() ? c10::optional<at::Tensor>(bias) : c10::nullopt, record);
}

}  // namespace

at::Tensor linear_cross_entropy(const ParallelLinearPlan& plan, const at::Tensor& x,
                                const at::Tensor& weight, const at::Tensor& bias,
                                const at::Tensor& labels, const LossFormula& formula) {
  const auto apply = [plan, formula](const variable_list& in) {
    return variable_list{loss_of(plan, in[0], in[1], in[2], in[3], formula)};
  };
  return call_opaque(kName, {x, weight, bias, labels}, apply)[0];
}

}  // namespace nxd
