#include "engine/nn/cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/kernels/cross_entropy.h"
#include "engine/device/collectives.h"
#include "engine/device/compute.h"
#include "engine/device/dtype_map.h"
#include "engine/device/pooled_tensor.h"

namespace nxd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Record : torch::CustomClassHolder {
  GroupRef group;
  bool fused = false;
  bool overwrite = false;
  double smoothing = 0;  // weight of the uniform part, by torch's formula
  int64_t vocabulary = 0;
  int64_t first = 0;
};

// Per row: the log of the sum of exponentials, the target's logit and the sum of the logits, over
// all shards.
struct Rows {
  at::Tensor lse, target, sum;
};

kernels::LogitShard shard_of(const Record& r, const at::Tensor& logits, const at::Tensor& targets) {
  kernels::LogitShard shard;
  shard.dtype = to_nxd_dtype(logits.scalar_type());
  shard.rows = logits.size(0);
  shard.cols = logits.size(1);
  shard.ld = logits.size(1);
  shard.logits = logits.data_ptr();
  shard.targets = targets.data_ptr<int64_t>();
  shard.first = r.first;
  return shard;
}

// Positions of targets in this shard, and whether they are in it.
std::pair<at::Tensor, at::Tensor> local_targets(const Record& r, const at::Tensor& targets,
                                                int64_t cols) {
  const at::Tensor local = targets - r.first;
  const at::Tensor held = local.ge(0).logical_and(local.lt(cols));
  return {(local * held).unsqueeze(1), held};
}

Rows reduce_rows(const Record& r, const at::Tensor& logits, const at::Tensor& targets) {
  const int64_t rows = logits.size(0);
  const auto options = logits.options().dtype(partial_sum_dtype(logits.scalar_type()));
  // Behind the maxima go the number of columns and its negative: their maxima tell every rank
  // whether all have the same share of the vocabulary.
  at::Tensor maxima = at::empty({rows + 2}, options);
  at::Tensor max = maxima.narrow(0, 0, rows);
  if (r.fused) {
    kernels::cross_entropy_row_max(shard_of(r, logits, targets), max.data_ptr<float>());
  } else {
    max.copy_(logits.to(options.dtype()).amax(1));
  }
  if (r.group->size() > 1) {
    maxima[rows] = logits.size(1);
    maxima[rows + 1] = -logits.size(1);
    maxima = all_reduce(*r.group, maxima, NXD_REDUCE_MAX);
    max = maxima.narrow(0, 0, rows);
    const auto most = maxima[rows].item<double>(), least = -maxima[rows + 1].item<double>();
    check_argument(most == least, "parallel_cross_entropy: logits: expected the same size of the ",
                   "last dimension on all ranks of group ", r.group->name(), ", got ",
                   logits.size(1), " on rank ", r.group->rank(), " and from ", least, " to ", most,
                   " on all");
  }
  at::Tensor sums = at::empty({3, rows}, options);
  if (r.fused) {
    float* out = sums.data_ptr<float>();
    kernels::cross_entropy_sums(shard_of(r, logits, targets), max.data_ptr<float>(), out,
                                out + rows, out + 2 * rows);
  } else {
    const at::Tensor wide = logits.to(options.dtype());
    const auto [position, held] = local_targets(r, targets, logits.size(1));
    sums.select(0, 0).copy_((wide - max.unsqueeze(1)).exp().sum(1));
    sums.select(0, 1).copy_(wide.gather(1, position).squeeze(1) * held);
    sums.select(0, 2).copy_(wide.sum(1));
  }
  if (r.group->size() > 1) sums = all_reduce(*r.group, sums);
  return {max + sums.select(0, 0).log(), sums.select(0, 1), sums.select(0, 2)};
}

at::Tensor logits_gradient(const Record& r, const at::Tensor& logits, const at::Tensor& targets,
                           const at::Tensor& lse, const at::Tensor& grad_row) {
  if (r.fused) {
    at::Tensor out = r.overwrite ? logits : pooled_empty_like(logits);
    kernels::cross_entropy_backward(shard_of(r, logits, targets), lse.data_ptr<float>(),
                                    grad_row.data_ptr<float>(), r.smoothing, r.vocabulary,
                                    out.data_ptr(), logits.size(1));
    return out;
  }
  const auto [position, held] = local_targets(r, targets, logits.size(1));
  at::Tensor d = (logits.to(lse.scalar_type()) - lse.unsqueeze(1)).exp();
  d = d - r.smoothing / static_cast<double>(r.vocabulary);
  d.scatter_add_(1, position, (held.to(d.scalar_type()) * (r.smoothing - 1)).unsqueeze(1));
  // An ignored row stays zero also where its logits are not finite.
  d = d.mul_(grad_row.unsqueeze(1)).masked_fill(grad_row.eq(0).unsqueeze(1), 0);
  return d.to(logits.scalar_type());
}

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  // logits [rows, cols] dense, targets [rows], valid [rows] as floats. Gives the loss per row.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits,
                            const at::Tensor& targets, const at::Tensor& valid,
                            const c10::intrusive_ptr<Record>& record) {
    const Record& r = *record;
    const Rows rows = reduce_rows(r, logits, targets);
    at::Tensor loss = rows.lse - rows.target * (1 - r.smoothing);
    if (r.smoothing != 0)
      loss = loss - rows.sum * (r.smoothing / static_cast<double>(r.vocabulary));
    ctx->saved_data["record"] = c10::IValue::make_capsule(record);
    ctx->save_for_backward({logits, targets, valid, rows.lse});
    return at::where(valid.ne(0), loss, at::zeros_like(loss));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto record =
        c10::static_intrusive_pointer_cast<Record>(ctx->saved_data["record"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor grad_row = (grads[0] * saved[2]).contiguous();
    return {logits_gradient(*record, saved[0], saved[1], saved[3], grad_row), at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

void check_inputs(ProcessGroup& group, const at::Tensor& logits, const at::Tensor& labels) {
  const char* op = "parallel_cross_entropy";
  check_with_group(
      group,
      logits.dim() >= 1 && logits.size(-1) > 0 && logits.is_floating_point() &&
          logits.scalar_type() != at::kHalf,
      op,
      text(
          "logits: expected a tensor of f32, f64 or bf16 whose last dimension is the vocabulary's, "
          "got ",
          c10::toString(logits.scalar_type()), " of shape ", logits.sizes()));
  check_with_group(group, labels.scalar_type() == at::kLong, op,
                   text("labels: expected dtype i64, got ", c10::toString(labels.scalar_type())));
  check_with_group(group, labels.sizes() == logits.sizes().slice(0, logits.sizes().size() - 1), op,
                   text("labels: expected the shape of the logits without the last dimension, ",
                        logits.sizes(), ", got ", labels.sizes()));
}

}  // namespace

CrossEntropyOptions resolve(const nxd_cross_entropy_options_t& options) {
  check_argument(options.label_smoothing >= 0 && options.label_smoothing <= 1,
                 "label_smoothing: expected 0 to 1, got ", options.label_smoothing);
  check_argument(
      options.smoothing == NXD_SMOOTHING_TORCH || options.smoothing == NXD_SMOOTHING_MEGATRON,
      "smoothing: expected an NXD_SMOOTHING_*, got ", options.smoothing);
  check_argument(options.reduction >= NXD_REDUCTION_MEAN && options.reduction <= NXD_REDUCTION_NONE,
                 "reduction: expected an NXD_REDUCTION_*, got ", options.reduction);
  CrossEntropyOptions result;
  result.label_smoothing = options.label_smoothing;
  result.smoothing = options.smoothing;
  result.reduction = options.reduction;
  if (options.has_ignore_index) result.ignore_index = options.ignore_index;
  return result;
}

at::Tensor parallel_cross_entropy(const Context& context, const GroupRef& group,
                                  const at::Tensor& logits, const at::Tensor& labels,
                                  const CrossEntropyOptions& options) {
  check_inputs(*group, logits, labels);
  auto record = c10::make_intrusive<Record>();
  record->group = group;
  record->fused = use_fused(context, logits);
  record->overwrite = options.overwrite_logits && logits.is_contiguous();
  record->vocabulary = logits.size(-1) * group->size();
  record->first = logits.size(-1) * group->rank();
  record->smoothing = options.label_smoothing;
  if (options.smoothing == NXD_SMOOTHING_MEGATRON && record->vocabulary > 1) {
    const auto v = static_cast<double>(record->vocabulary);
    record->smoothing = options.label_smoothing * v / (v - 1);
  }
  const at::Tensor targets = labels.reshape({-1}).contiguous();
  const at::Tensor valid = targets.ne(options.ignore_index);
  if (!targets.is_meta() && targets.numel() > 0) {
    const at::Tensor outside =
        valid.logical_and(targets.lt(0).logical_or(targets.ge(record->vocabulary)));
    check_with_group(*group, !outside.any().item<bool>(), "parallel_cross_entropy",
                     text("labels: expected 0 to ", record->vocabulary - 1, " or ",
                          options.ignore_index, " to ignore, got another value"));
  }
  const at::Tensor rows = logits.reshape({-1, logits.size(-1)}).contiguous();
  const at::ScalarType wide = partial_sum_dtype(logits.scalar_type());
  if (logits.is_meta()) {
    const auto shape = options.reduction == NXD_REDUCTION_NONE ? labels.sizes() : at::IntArrayRef();
    return at::empty(shape, logits.options().dtype(wide));
  }
  const at::Tensor loss = CrossEntropy::apply(rows, targets, valid.to(wide), record);
  if (options.reduction == NXD_REDUCTION_NONE) return loss.view(labels.sizes());
  if (options.reduction == NXD_REDUCTION_SUM) return loss.sum();
  const int64_t count = valid.sum().item<int64_t>();
  return loss.sum() / static_cast<double>(std::max<int64_t>(count, 1));
}

}  // namespace nxd
