#include "engine/functional/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/kernels/cross_entropy.h"
#include "core/kernels/elementwise.h"
#include "engine/autograd/gradients.h"
#include "engine/device/kernel_call.h"
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

struct LossForm {
  ParallelLinearPlan plan;
  LossTargets targets;
  nxd_reduction_t reduction = NXD_REDUCTION_MEAN;
  // Found where autograd is listening: inside of a custom function it records nothing.
  bool wants_dx = false;
  bool wants_dweight = false;
  bool wants_dbias = false;

  bool sums_dx() const { return plan.input != Input::kAsIs; }
  // The dtype of the gradient by the input, before ranks sum it.
  at::ScalarType dx_dtype(at::ScalarType dtype) const {
    return sums_dx() ? plan.exchanged_dtype(dtype) : dtype;
  }
};

// The pass over the blocks. The gradients are those of the reduced loss.
class Blocks {
 public:
  // in: [..., features], dense; bias: of the weight's dtype, or undefined.
  Blocks(const LossForm& form, const at::Tensor& in, const at::Tensor& weight,
         const at::Tensor& bias)
      : form_(form),
        divisor_(loss_divisor(form.targets, form.reduction)),
        x_(in.reshape({-1, in.size(-1)}).contiguous()),
        weight_(weight),
        bias_(bias.defined() ? bias.to(at::kFloat) : bias),
        dtype_(weight.scalar_type()),
        rows_(kernels::logit_block_rows(x_.size(0), weight.size(0))),
        grad_row_(at::full({x_.size(0)}, 1 / divisor_, at::kFloat)),
        losses_(at::empty({x_.size(0)}, at::kFloat)) {
    const at::ScalarType wide = partial_sum_dtype(dtype_);
    if (form.wants_dx) {
      const at::ScalarType to = form.dx_dtype(dtype_);
      dx_ = form.sums_dx() ? exchanged_empty(*form.plan.group, x_.sizes(), to)
                           : pooled_empty(x_.sizes(), to);
    }
    // Sums of several blocks are rounded once.
    if (form.wants_dweight) {
      dweight_ = pooled_empty(weight.sizes(), x_.size(0) > rows_ ? wide : dtype_);
      if (x_.size(0) == 0) dweight_.zero_();
    }
    if (form.wants_dbias) dbias_ = at::zeros({weight.size(0)}, at::kFloat);
    for (int64_t first = 0; first < x_.size(0); first += rows_) {
      run(first, std::min(rows_, x_.size(0) - first));
    }
  }

  at::Tensor loss() const { return losses_.sum() / divisor_; }

  // By the input in the region, in the dtype in which ranks sum it.
  const at::Tensor& dx() const { return dx_; }

  at::Tensor dweight() const {
    return dweight_.defined() ? cast(*form_.plan.context, dweight_, dtype_) : dweight_;
  }

  at::Tensor dbias() const { return dbias_.defined() ? dbias_.to(dtype_) : dbias_; }

 private:
  void run(int64_t first, int64_t rows) {
    const Context& context = *form_.plan.context;
    const at::Tensor x = x_.narrow(0, first, rows);
    LossTargets targets = form_.targets;
    targets.ids = targets.ids.narrow(0, first, rows);
    at::Tensor logits = matrix_product(context, x, false, weight_, true, at::kFloat);
    if (bias_.defined()) logits.add_(bias_);
    logits = hide_padding(*form_.plan.group, targets.smoothing.vocabulary, logits);
    const RowLosses block = fused_row_losses(*form_.plan.group, kName, logits, targets);
    losses_.narrow(0, first, rows).copy_(block.loss);
    if (!form_.wants_dx && !form_.wants_dweight && !form_.wants_dbias) return;
    at::Tensor dlogits = dtype_ == at::kFloat ? logits : pooled_empty(logits.sizes(), dtype_);
    fused_logits_gradient(*form_.plan.group, logits, targets, block.statistics,
                          grad_row_.narrow(0, first, rows), dlogits);
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

  const LossForm& form_;
  const double divisor_;
  at::Tensor x_, weight_, bias_;
  at::ScalarType dtype_;
  int64_t rows_;
  at::Tensor grad_row_, losses_;
  at::Tensor dx_, dweight_, dbias_;
};

// {loss, dx, dweight, dbias}, of which those that nobody wants are undefined.
variable_list run_blocks(const LossForm& form, const at::Tensor& in, const at::Tensor& weight,
                         const at::Tensor& bias) {
  const Blocks blocks(form, in, weight, bias);
  return {blocks.loss(), blocks.dx(), blocks.dweight(), blocks.dbias()};
}

// The same, when the graph runs.
variable_list record_blocks(const LossForm& form, const at::Tensor& in, const at::Tensor& weight,
                            const at::Tensor& bias) {
  const at::ScalarType dtype = weight.scalar_type();
  const ProcessGroup& group = *form.plan.group;
  const bool is_alone = group.size() == 1;
  RecordedCall call{is_alone ? "nxd::linear_cross_entropy" : "nxd::linear_cross_entropy_of_ranks"};
  call.attributes = text("group ", group.name(), ", first ", form.targets.first, ", smoothing ",
                         form.targets.smoothing.weight, ", vocabulary ",
                         form.targets.smoothing.vocabulary, ", reduction ", form.reduction);
  call.is_effect = !is_alone;
  const auto wanted = [](bool wants, const at::Tensor& like, at::ScalarType type) {
    return wants ? kernel_result(like.sizes(), type) : at::Tensor();
  };
  call.results = {kernel_result({}, at::kFloat), wanted(form.wants_dx, in, form.dx_dtype(dtype)),
                  wanted(form.wants_dweight, weight, dtype), wanted(form.wants_dbias, bias, dtype)};
  // Without its tensors, which would be results of the graph for as long as it is held.
  LossForm kept = form;
  kept.targets.ids.reset();
  kept.targets.valid.reset();
  call.function = [kept](const variable_list& given) {
    LossForm here = kept;
    here.targets.ids = given[3].contiguous();
    here.targets.valid = given[4];
    variable_list out = run_blocks(here, given[0].contiguous(), given[1].contiguous(), given[2]);
    if (out[1].defined()) out[1] = out[1].view(given[0].sizes());
    return out;
  };
  return record_call(std::move(call), {in, weight, bias, form.targets.ids, form.targets.valid});
}

// x times a number, or x itself where that is 1.
struct Scaled {
  static constexpr const char* kName = "nxd::scaled";

  KernelParameters parameters() const { return {}; }
  variable_list results(const variable_list& in) const { return {kernel_result_like(in[0])}; }
  variable_list run(const variable_list& in) const {
    const double factor = in[1].item<double>();
    if (factor == 1) return {in[0]};
    const at::Tensor x = in[0].contiguous();
    at::Tensor y = pooled_empty_like(x);
    kernels::scale(to_nxd_dtype(x.scalar_type()), x.numel(), x.data_ptr(), factor, y.data_ptr());
    return {y};
  }
};

at::Tensor scaled(const at::Tensor& x, const at::Tensor& factor) {
  return x.defined() ? call_kernel(Scaled{}, {x, factor})[0] : x;
}

// As the rank's own x: summed over ranks, and scattered where x is a part.
at::Tensor dx_of_rank(const LossForm& form, at::Tensor dx, at::IntArrayRef in_sizes,
                      at::ScalarType dtype) {
  if (!dx.defined()) return dx;
  const ParallelLinearPlan& plan = form.plan;
  dx = dx.view(in_sizes);
  if (plan.input == Input::kCopy) all_reduce_in_place(*plan.group, dx);
  if (plan.input == Input::kGatherSequence) dx = reduce_scatter(*plan.group, dx, plan.dim);
  return cast(*plan.context, dx, dtype);
}

struct LossRecord : torch::CustomClassHolder {
  LossForm form;
};

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const c10::optional<at::Tensor>& given_bias,
                            const c10::intrusive_ptr<LossRecord>& record) {
    const LossForm& form = record->form;
    const at::Tensor in = input_in_region(form.plan, x), bias = given_bias.value_or(at::Tensor());
    const variable_list out = is_recorded(in) ? record_blocks(form, in, weight, bias)
                                              : run_blocks(form, in, weight, bias);
    // Neither x nor a parameter is read again, so that they may change before backward.
    ctx->save_for_backward(
        {dx_of_rank(form, out[1], in.sizes(), weight.scalar_type()), out[2], out[3]});
    return out[0];
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_unrecorded_pass(kName);
    const variable_list saved = ctx->get_saved_variables();
    return {scaled(saved[0], grads[0]), scaled(saved[1], grads[0]), scaled(saved[2], grads[0]),
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
             dtype_text(dtype), " of shape ", weight.sizes()));
  check(
      x.dim() >= 1 && x.size(-1) == weight.size(1) && takes_input(dtype, x.scalar_type()),
      text("x: expected ", dtype_text(dtype), " of shape [..., ", weight.size(1),
           "], as the weight's rows, got ", dtype_text(x.scalar_type()), " of shape ", x.sizes()));
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
  check(on_same_device(weight, x) && on_same_device(labels, x),
        text("weight, labels: expected device ", x.device(), ", where x is, got ", weight.device(),
             " and ", labels.device()));
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
  auto record = c10::make_intrusive<LossRecord>();
  LossForm& form = record->form;
  form.plan = plan;
  if (plan.group->size() == 1) form.plan.input = Input::kAsIs;
  form.targets = loss_targets(plan.group, kName, labels, weight.size(0), formula);
  form.reduction = formula.reduction;
  form.wants_dx = at::GradMode::is_enabled() && x.requires_grad();
  form.wants_dweight = at::GradMode::is_enabled() && weight.requires_grad();
  form.wants_dbias = at::GradMode::is_enabled() && bias.defined() && bias.requires_grad();
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
