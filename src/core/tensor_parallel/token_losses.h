#pragma once

#include "core/agree/proposal.h"
#include "core/tensor_parallel/id_input.h"
#include "core/tensor_parallel/loss_formula.h"
#include "core/tensor_parallel/row_statistics.h"

namespace nxd {

// The tokens of one call of a loss: their labels, what is read and written for each of them, and
// how their losses are reduced.
class TokenLosses {
 public:
  // all_cols: of all ranks' logits. INVALID_ARGUMENT for a formula or labels out of range.
  TokenLosses(const LossFormula& formula, int64_t all_cols, const Array& labels,
              nxd_dtype_t logits_dtype, Scratch& scratch);

  // The dtype of statistics and losses: f64 for f64, else f32.
  nxd_dtype_t wide() const { return wide_; }
  int64_t count() const { return labels_array_.count(); }
  const LossFormula& formula() const { return formula_; }
  Array::Shape statistics_shape() const;
  // as: whose dtype decides, such as "logits".
  void check_statistics(const std::optional<Array>& statistics, const char* as) const;
  void check_loss(const std::optional<Array>& loss, const char* name, const char* as) const;
  // Adds what ranks must have alike; losses are null on a rank that rejects.
  static void propose(Proposal& proposal, const TokenLosses* losses);

  // The labels as kernels take them; to be called once.
  const int64_t* labels(const Scratch& scratch) const { return labels_.read(scratch); }
  LossSmoothing smoothing() const {
    return {formula_.uniform_weight(formula_.vocab_size), formula_.vocab_size};
  }
  // The loss of the call from that of each token, of which ignored ones become 0.
  template <class T>
  void write_loss(const int64_t* labels, T* losses, const Array& loss) const;
  // The factor of each token's gradient; without a gradient of the loss that is 1.
  template <class T>
  void read_factors(const int64_t* labels, const std::optional<Array>& grad_loss, T* factors) const;

 private:
  bool is_ignored(int64_t label) const { return label == formula_.ignore_index; }
  bool is_each() const { return formula_.reduction == NXD_REDUCTION_NONE; }
  void check_dtype(const Array& array, const char* name, const char* as) const;
  // The sum over tokens is divided by it.
  double divisor(const int64_t* labels) const;

  LossFormula formula_;
  Array labels_array_;
  nxd_dtype_t logits_dtype_, wide_;
  IdInput labels_;
};

}  // namespace nxd
