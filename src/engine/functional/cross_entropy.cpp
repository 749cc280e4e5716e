#include "engine/functional/cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <bit>
#include <limits>

#include "core/tensor_parallel/parallel_cross_entropy.h"
#include "engine/autograd/gradients.h"
#include "engine/device/device_tensor.h"
#include "engine/ops/collectives.h"
#include "engine/ops/compute.h"
#include "engine/ops/part_at.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kParallelCrossEntropy = "parallel_cross_entropy";
constexpr const char* kKeyed = "the labels and the options of the loss";

struct CrossEntropyRecord : torch::CustomClassHolder {
  GroupRef group;
  bool fused = false;
  LossTargets targets;
};

// Positions of targets in this shard, and whether they are in it.
std::pair<at::Tensor, at::Tensor> local_targets(const LossTargets& targets, int64_t cols) {
  const at::Tensor local = targets.ids - targets.first;
  const at::Tensor held = local.ge(0).logical_and(local.lt(cols));
  return {(local * held).unsqueeze(1), held};
}

// Per row: log of the sum of exponentials as max + log_sum, and the loss, which means nothing where
// the label is not valid.
struct ReferenceLosses {
  at::Tensor max, log_sum, loss;
};

ReferenceLosses reference_row_losses(const GroupRef& group, const at::Tensor& logits,
                                     const LossTargets& targets) {
  const int64_t rows = logits.size(0), cols = logits.size(1);
  const at::Tensor wide = logits.to(partial_sum_dtype(logits.scalar_type()));
  // Behind the maxima go the number of columns and its negative: their maxima tell every rank
  // whether all have the same share of the vocabulary.
  at::Tensor maxima = at::empty({rows + 2}, wide.options());
  at::Tensor max = maxima.narrow(0, 0, rows);
  max.copy_(wide.amax(1));
  if (group->size() > 1) {
    maxima[rows] = cols;
    maxima[rows + 1] = -cols;
    maxima = with_key_of(kKeyed,
                         [&] { return all_reduce(*group, maxima, NXD_REDUCE_MAX, targets.key); });
    max = maxima.narrow(0, 0, rows);
    check_values(nullptr, kParallelCrossEntropy, "nxd::check_shares", maxima.narrow(0, rows, 2),
                 [group, cols](const at::Tensor& most_and_least) {
                   return differing_vocabulary_shares(*group, cols,
                                                      -most_and_least[1].item<double>(),
                                                      most_and_least[0].item<double>());
                 });
  }
  // From the maximum on: the logarithm beside a large one would lose its digits.
  const at::Tensor below = wide - max.unsqueeze(1);
  at::Tensor sums = at::empty({3, rows}, wide.options());
  const auto [position, held] = local_targets(targets, logits.size(1));
  sums.select(0, 0).copy_(below.exp().sum(1));
  // Another rank's target counts for nothing here, whatever stands in its place.
  sums.select(0, 1).copy_(below.gather(1, position).squeeze(1).masked_fill(held.logical_not(), 0));
  sums.select(0, 2).copy_(below.sum(1));
  if (group->size() > 1) sums = all_reduce(*group, sums);
  const at::Tensor log_sum = sums.select(0, 0).log();
  at::Tensor loss = log_sum - sums.select(0, 1) * (1 - targets.smoothing.weight);
  if (targets.smoothing.weight != 0) {
    loss = loss - sums.select(0, 2) * (targets.smoothing.weight /
                                       static_cast<double>(targets.smoothing.vocabulary));
  }
  return {max, log_sum, loss};
}

at::Tensor reference_logits_gradient(const LossTargets& targets, const at::Tensor& logits,
                                     const at::Tensor& max, const at::Tensor& log_sum,
                                     const at::Tensor& grad_row) {
  const auto [position, held] = local_targets(targets, logits.size(1));
  const at::Tensor below = logits.to(max.scalar_type()) - max.unsqueeze(1);
  at::Tensor d = (below - log_sum.unsqueeze(1)).exp();
  d = d - targets.smoothing.weight / static_cast<double>(targets.smoothing.vocabulary);
  d.scatter_add_(1, position,
                 (held.to(d.scalar_type()) * (targets.smoothing.weight - 1)).unsqueeze(1));
  // An ignored row stays zero also where its logits are not finite.
  d = d.mul_(grad_row.unsqueeze(1)).masked_fill(grad_row.eq(0).unsqueeze(1), 0);
  return d.to(logits.scalar_type());
}

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  // logits [rows, cols] dense. Gives the loss per row.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits,
                            const c10::intrusive_ptr<CrossEntropyRecord>& record) {
    const CrossEntropyRecord& r = *record;
    ctx->saved_data["record"] = c10::IValue::make_capsule(record);
    if (r.fused) {
      const RowLosses rows = fused_row_losses(*r.group, kParallelCrossEntropy, logits, r.targets);
      ctx->save_for_backward({logits, rows.statistics, r.targets.ids});
      return rows.loss;
    }
    const ReferenceLosses rows = reference_row_losses(r.group, logits, r.targets);
    ctx->save_for_backward({logits, rows.max, rows.log_sum, r.targets.ids});
    return at::where(r.targets.valid, rows.loss, at::zeros_like(rows.loss));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_unrecorded_pass(kParallelCrossEntropy);
    const auto record = c10::static_intrusive_pointer_cast<CrossEntropyRecord>(
        ctx->saved_data["record"].toCapsule());
    const CrossEntropyRecord& r = *record;
    const variable_list saved = ctx->get_saved_variables();
    LossTargets targets = r.targets;
    targets.ids = saved.back();  // which have been compared with those of the forward
    if (r.fused) {
      const at::Tensor out = pooled_empty_like(saved[0]);
      fused_logits_gradient(*r.group, saved[0], targets, saved[1], grads[0], out);
      return {out, at::Tensor()};
    }
    const at::Tensor grad_row = grads[0] * targets.valid;
    return {reference_logits_gradient(targets, saved[0], saved[1], saved[2], grad_row),
            at::Tensor()};
  }
};

void check_inputs(ProcessGroup& group, const at::Tensor& logits, const at::Tensor& labels) {
  const char* op = kParallelCrossEntropy;
  check_with_group(group,
                   logits.dim() >= 1 && logits.size(-1) > 0 && logits.is_floating_point() &&
                       logits.scalar_type() != at::kHalf,
                   op,
                   "logits: expected a tensor of f32, f64 or bf16 whose last dimension is the "
                   "vocabulary's, got ",
                   dtype_text(logits.scalar_type()), " of shape ", logits.sizes());
  check_with_group(group, labels.sizes() == logits.sizes().slice(0, logits.sizes().size() - 1), op,
                   "labels: expected the shape of the logits without the last dimension, ",
                   logits.sizes(), ", got ", labels.sizes());
  check_with_group(group, on_same_device(labels, logits), op, "labels: expected device ",
                   logits.device(), ", where the logits are, got ", labels.device());
}

}  // namespace

at::Tensor hide_padding(const ProcessGroup& group, int64_t vocabulary, const at::Tensor& logits) {
  const int64_t cols = logits.size(-1);
  if (vocabulary == cols * group.size() || logits.is_meta()) return logits;
  const int64_t real = std::clamp<int64_t>(vocabulary - cols * group.rank(), 0, cols);
  const double least = logits.scalar_type() == at::kDouble ? std::numeric_limits<double>::lowest()
                                                           : -0x1p127;  // which bf16 has too
  // Ranks without such columns record the same graph.
  if (is_recorded(logits)) return filled_behind(logits, real, least);
  if (real == cols) return logits;
  // With a version counter of its own: what autograd keeps is not touched.
  logits.variable_data().narrow(-1, real, cols - real).fill_(least);
  return logits;
}

namespace {

Hash hash_of(const LossFormula& formula) {
  Hash hash;
  return hash.add(std::bit_cast<uint64_t>(formula.label_smoothing + 0.0))
      .add(static_cast<uint64_t>(formula.smoothing))
      .add(static_cast<uint64_t>(formula.reduction))
      .add(static_cast<uint64_t>(formula.ignore_index))
      .add(static_cast<uint64_t>(formula.vocab_size));
}

}  // namespace

LossTargets loss_targets(const GroupRef& group, const char* op, const at::Tensor& labels,
                         int64_t cols, const LossFormula& formula) {
  check_with_group(*group, labels.scalar_type() == at::kLong, op,
                   "labels: expected dtype i64, got ", dtype_text(labels.scalar_type()));
  LossTargets targets;
  const int64_t all = cols * group->size();
  const int64_t vocabulary = formula.vocab_size > 0 ? formula.vocab_size : all;
  check_internal(vocabulary <= all && (formula.label_smoothing == 0 || vocabulary == all), op,
                 ": no smoothing over a padded vocabulary");
  targets.first = cols * group->rank();
  // Columns that pad the vocabulary have no weight in the losses: hide_padding().
  targets.formula = formula;
  targets.formula.vocab_size = 0;
  targets.formula.reduction = NXD_REDUCTION_NONE;
  targets.smoothing = {formula.uniform_weight(vocabulary), vocabulary};
  targets.ids = labels.reshape({-1}).contiguous();
  targets.valid = targets.ids.ne(formula.ignore_index);
  targets.key = key_of(*group, targets.ids, hash_of(formula));
  if (targets.ids.numel() == 0) return targets;
  const auto find_failure = [vocabulary,
                             ignored = formula.ignore_index](const at::Tensor& ids) -> std::string {
    const at::Tensor outside =
        ids.ne(ignored).logical_and(ids.lt(0).logical_or(ids.ge(vocabulary)));
    if (!outside.any().item<bool>()) return "";
    return text("labels: expected 0 to ", vocabulary - 1, " or ", ignored,
                " to ignore, got another value");
  };
  check_values(group, op, "nxd::check_labels", targets.ids, find_failure);
  return targets;
}

double loss_divisor(const LossTargets& targets, nxd_reduction_t reduction) {
  if (reduction != NXD_REDUCTION_MEAN) return 1;
  return static_cast<double>(std::max<int64_t>(targets.valid.sum().item<int64_t>(), 1));
}

RowLosses fused_row_losses(ProcessGroup& group, const char* op, const at::Tensor& logits,
                           const LossTargets& targets) {
  const int64_t rows = logits.size(0);
  RowLosses out{pooled_empty({2, rows}, at::kFloat), pooled_empty({rows}, at::kFloat)};
  const VocabLossArrays arrays{array_of(logits), array_of(targets.ids), array_of(out.statistics),
                               array_of(out.loss)};
  VocabLossOptions options{targets.formula};
  options.operation = op;
  options.key = targets.key;
  with_key_of(kKeyed, [&] { run_alike(group, op, VocabLossForward(group, arrays, options)); });
  return out;
}

void fused_logits_gradient(ProcessGroup& group, const at::Tensor& logits,
                           const LossTargets& targets, const at::Tensor& statistics,
                           const at::Tensor& grad_row, const at::Tensor& out) {
  const VocabLossArrays arrays{array_of(logits), array_of(targets.ids), array_of(statistics),
                               array_of(grad_row), array_of(out)};
  VocabLossOptions options{targets.formula};
  options.rounds_grad = true;
  run_alike(group, options.operation, VocabLossBackward(group, arrays, options));
}

namespace {

// On the meta device: the shape of the loss, and that of its gradient through autograd.
at::Tensor loss_shape(const at::Tensor& logits, nxd_reduction_t reduction) {
  const at::Tensor rows = logits.select(-1, 0).to(partial_sum_dtype(logits.scalar_type()));
  return reduction == NXD_REDUCTION_NONE ? rows.contiguous() : rows.sum();
}

at::Tensor cross_entropy(const Context& context, const GroupRef& group, const at::Tensor& logits,
                         const at::Tensor& labels, const LossFormula& formula) {
  check_inputs(*group, logits, labels);
  auto record = c10::make_intrusive<CrossEntropyRecord>();
  record->group = group;
  record->fused = logits.is_cpu() && use_fused(context, logits);
  record->targets = loss_targets(group, kParallelCrossEntropy, labels, logits.size(-1), formula);
  if (logits.is_meta() || is_tracing()) return loss_shape(logits, formula.reduction);
  const at::Tensor rows = logits.reshape({-1, logits.size(-1)}).contiguous();
  const at::Tensor loss = CrossEntropy::apply(rows, record);
  if (formula.reduction == NXD_REDUCTION_NONE) return loss.view(labels.sizes());
  if (is_recorded(loss)) {
    const at::Tensor sum = loss.sum();
    return formula.reduction == NXD_REDUCTION_MEAN ? sum / record->targets.valid.sum().clamp_min(1)
                                                   : sum;
  }
  return loss.sum() / loss_divisor(record->targets, formula.reduction);
}

}  // namespace

at::Tensor parallel_cross_entropy(const Context& context, const GroupRef& group,
                                  const at::Tensor& logits, const at::Tensor& labels,
                                  const LossFormula& formula) {
  const auto apply = [shared = context.shared_from_this(), group,
                      formula](const variable_list& inputs) {
    return variable_list{cross_entropy(*shared, group, inputs[0], inputs[1], formula)};
  };
  return call_opaque(kParallelCrossEntropy, {logits, labels}, apply)[0];
}

}  // namespace nxd
