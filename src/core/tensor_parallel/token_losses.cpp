#include "core/tensor_parallel/token_losses.h"

#include <algorithm>

#include "core/base/dtype.h"
#include "core/tensor_parallel/array_checks.h"
#include "core/tensor_parallel/stacked_parts.h"

namespace nxd {

TokenLosses::TokenLosses(const LossFormula& formula, int64_t all_cols, const Array& labels,
                         nxd_dtype_t logits_dtype, Scratch& scratch)
    : formula_(formula),
      labels_array_(labels),
      logits_dtype_(logits_dtype),
      wide_(partial_sum_dtype(logits_dtype)),
      labels_(labels, "labels", scratch) {
  int64_t& vocabulary = formula_.vocab_size;
  check_argument(vocabulary >= 0 && vocabulary <= all_cols, "vocab_size: expected 0 to ", all_cols,
                 ", the columns of all ranks, got ", vocabulary);
  if (vocabulary == 0) vocabulary = all_cols;
}

Array::Shape TokenLosses::statistics_shape() const {
  Array::Shape shape = labels_array_.shape;
  shape.insert(shape.begin(), 2);
  return shape;
}

void TokenLosses::check_dtype(const Array& array, const char* name, const char* as) const {
  check_argument(array.dtype == wide_, name, ": expected ", dtype_name(wide_), " for ", as, " of ",
                 dtype_name(logits_dtype_), ", got ", dtype_name(array.dtype));
}

void TokenLosses::check_statistics(const std::optional<Array>& statistics, const char* as) const {
  if (!statistics) return;
  check_dtype(*statistics, "statistics", as);
  check_shape(*statistics, "statistics", statistics_shape());
}

void TokenLosses::check_loss(const std::optional<Array>& loss, const char* name,
                             const char* as) const {
  if (loss) {
    check_dtype(*loss, name, as);
    check_shape(*loss, name, is_each() ? labels_array_.shape : Array::Shape{});
  }
  labels_.check_range(formula_.vocab_size, formula_.ignore_index);
}

void TokenLosses::propose(Proposal& proposal, const TokenLosses* losses) {
  const auto same = [&](const char* name, auto value) {
    proposal.same(name, losses ? static_cast<double>(value(*losses)) : 0);
  };
  using Losses = const TokenLosses&;
  same("vocab_size", [](Losses t) { return t.formula_.vocab_size; });
  same("number of labels", [](Losses t) { return t.count(); });
  proposal.same_digest("digest of the labels", losses ? losses->labels_.digest() : 0);
  same("label_smoothing", [](Losses t) { return t.formula_.label_smoothing; });
  same("smoothing", [](Losses t) { return t.formula_.smoothing; });
  same("reduction", [](Losses t) { return t.formula_.reduction; });
  same("ignore_index", [](Losses t) { return t.formula_.ignore_index; });
}

double TokenLosses::divisor(const int64_t* labels) const {
  if (formula_.reduction != NXD_REDUCTION_MEAN) return 1;
  int64_t valid = 0;
  for (int64_t r = 0; r < count(); ++r) valid += is_ignored(labels[r]) ? 0 : 1;
  return static_cast<double>(std::max<int64_t>(valid, 1));
}

template <class T>
void TokenLosses::write_loss(const int64_t* labels, T* losses, const Array& loss) const {
  double sum = 0;
  for (int64_t r = 0; r < count(); ++r) {
    if (is_ignored(labels[r])) losses[r] = 0;
    sum += static_cast<double>(losses[r]);
  }
  if (is_each()) {
    const Array each = Array::dense(wide_, labels_array_.shape, losses);
    return kernels::move_rows(each.rows(), loss.rows());
  }
  *reinterpret_cast<T*>(loss.data) = static_cast<T>(sum / divisor(labels));
}

template <class T>
void TokenLosses::read_factors(const int64_t* labels, const std::optional<Array>& grad_loss,
                               T* factors) const {
  const auto share = static_cast<T>(1 / divisor(labels));
  const bool each = grad_loss && is_each();
  if (each) {
    const Array to = Array::dense(wide_, labels_array_.shape, factors);
    kernels::move_rows(grad_loss->rows(), to.rows());
  }
  const T all = grad_loss && !each ? *reinterpret_cast<const T*>(grad_loss->data) : T{1};
  for (int64_t r = 0; r < count(); ++r) {
    if (!each) factors[r] = all * share;
    if (is_ignored(labels[r])) factors[r] = 0;
  }
}

template void TokenLosses::write_loss(const int64_t*, float*, const Array&) const;
template void TokenLosses::write_loss(const int64_t*, double*, const Array&) const;
template void TokenLosses::read_factors(const int64_t*, const std::optional<Array>&, float*) const;
template void TokenLosses::read_factors(const int64_t*, const std::optional<Array>&, double*) const;

}  // namespace nxd
