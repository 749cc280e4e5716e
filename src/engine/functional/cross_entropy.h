#pragma once

#include <ATen/core/Tensor.h>

#include "core/tensor_parallel/loss_formula.h"
#include "core/tensor_parallel/row_statistics.h"
#include "core/world/context.h"
#include "engine/functional/mappings.h"

namespace nxd {

// Gives the columns that pad a vocabulary, the last ones of the last ranks, logits so small that no
// softmax sees them: they get no gradient either, so autograd need not know. In place, but on the
// recorded device, whose tensors have no memory to write to behind autograd's back.
[[nodiscard]] at::Tensor hide_padding(const ProcessGroup& group, int64_t vocabulary,
                                      const at::Tensor& logits);

// The labels of a loss whose vocabulary is split over a group, the same on all ranks.
struct LossTargets {
  at::Tensor ids;                 // [rows], i64
  at::Tensor valid;               // [rows], bool
  LossFormula formula;            // of each token's loss, over all columns
  LossSmoothing smoothing{0, 0};  // over the vocabulary of all ranks, without padding
  int64_t first = 0;              // of this rank's columns
  uint64_t key = 0;               // of the labels and the formula, which all ranks have alike
};

// Targets of labels of any shape, where each rank has cols columns. Rejects, on all ranks and in
// op's name, labels of another dtype than i64 or outside of the vocabulary.
LossTargets loss_targets(const GroupRef& group, const char* op, const at::Tensor& labels,
                         int64_t cols, const LossFormula& formula);

// Divisor of the sum over rows: for the mean the number of valid labels, at least 1.
double loss_divisor(const LossTargets& targets, nxd_reduction_t reduction);

// Core's cross entropy of this rank's columns of the logits, [rows, cols] dense, f32 or bf16, on
// the CPU: the losses of rows, 0 where the label is not valid, and their statistics. One small
// all-gather, which also finds ranks with other shares of the vocabulary.
struct RowLosses {
  at::Tensor statistics, loss;  // f32, the same bits on all ranks
};
RowLosses fused_row_losses(ProcessGroup& group, const char* op, const at::Tensor& logits,
                           const LossTargets& targets);

// Gradient of the sum over rows of grad_row [rows] times loss by the logits, into out [rows, cols]
// dense, f32 or bf16: may be the logits where the dtypes are equal.
void fused_logits_gradient(ProcessGroup& group, const at::Tensor& logits,
                           const LossTargets& targets, const at::Tensor& statistics,
                           const at::Tensor& grad_row, const at::Tensor& out);

// Cross entropy on logits [..., vocabulary / ranks] and labels [...]; see
// nxd_parallel_cross_entropy.
at::Tensor parallel_cross_entropy(const Context& context, const GroupRef& group,
                                  const at::Tensor& logits, const at::Tensor& labels,
                                  const LossFormula& formula);

}  // namespace nxd
