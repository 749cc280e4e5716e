#include "core/tensor_parallel/parallel_cross_entropy.h"

#include <algorithm>
#include <utility>

#include "core/base/dtype.h"
#include "core/tensor_parallel/array_checks.h"
#include "core/tensor_parallel/array_overlap.h"
#include "core/tensor_parallel/dense_array.h"

namespace nxd {
namespace {

std::optional<Matrix> dense_rows_of(const Array& array) {
  const std::optional<Matrix> matrix = as_matrix(array);
  return matrix && matrix->col_stride == 1 ? matrix : std::nullopt;
}

const Array& checked_logits(const Array& logits) {
  check_float(logits, "logits");
  check_argument(logits.dims() >= 1 && logits.last() > 0,
                 "logits: expected at least 1 column of the vocabulary, got the shape ",
                 shape_text(logits.shape));
  return logits;
}

}  // namespace

LogitInput::LogitInput(const Array& logits, Scratch& scratch) : logits_(logits) {
  const std::optional<Matrix> matrix = dense_rows_of(logits);
  copies_ = !matrix || kernel_dtype(logits.dtype) != logits.dtype;
  if (matrix) matrix_ = *matrix;
  if (copies_) {
    block_ = scratch.reserve(logits.count(), 1, kernel_dtype(logits.dtype), Scratch::Use::kOwn);
  }
}

Array LogitInput::copy(const Scratch& scratch) const {
  return Array::dense(kernel_dtype(logits_.dtype), logits_.shape, scratch.at(block_));
}

kernels::LogitShard LogitInput::read(const Scratch& scratch, int64_t cols) const {
  kernels::LogitShard shard;
  shard.dtype = kernel_dtype(logits_.dtype);
  shard.cols = cols;
  shard.ld = copies_ ? logits_.last() : matrix_.row_stride;
  shard.logits = matrix_.data;
  if (!copies_) return shard;
  const Array to = copy(scratch);
  kernels::move_rows(logits_.rows(), to.rows());
  shard.logits = to.data;
  return shard;
}

int64_t real_columns(int64_t cols, int rank, int64_t vocabulary) {
  return std::clamp<int64_t>(vocabulary - cols * rank, 0, cols);
}

VocabLossPlan::VocabLossPlan(const ProcessGroup& group, bool backward, VocabLossArrays arrays,
                             const VocabLossOptions& options)
    : group_(group),
      arrays_(std::move(arrays)),
      options_(options),
      tokens_(options, checked_logits(arrays_.logits).last() * group.size(), arrays_.labels,
              arrays_.logits.dtype, scratch_),
      logits_(arrays_.logits, scratch_),
      backward_(backward) {
  check_arrays();
}

void VocabLossPlan::check_arrays() const {
  const char* const loss = backward_ ? "grad_loss" : "loss";
  const Array::Shape& shape = arrays_.logits.shape;
  check_shape(arrays_.labels, "labels", Array::Shape(shape.begin(), shape.end() - 1));
  tokens_.check_statistics(arrays_.statistics, "logits");
  tokens_.check_loss(arrays_.loss, loss, "logits");
  CallMemory memory;
  memory.add_input(arrays_.labels, "labels");
  if (!backward_) {
    memory.add_input(arrays_.logits, "logits");
    memory.add_output(arrays_.statistics, "statistics");
    memory.add_output(arrays_.loss, loss);
    return memory.check(options_.workspace);
  }
  memory.add_input(arrays_.statistics, "statistics");
  memory.add_input(arrays_.loss, loss);
  const Array& grad = *arrays_.grad_logits;
  const bool rounds =
      options_.rounds_grad && arrays_.logits.dtype == NXD_DTYPE_F32 && grad.dtype == NXD_DTYPE_BF16;
  if (!rounds) check_same_dtype(grad, "grad_logits", arrays_.logits.dtype, "logits");
  check_shape(grad, "grad_logits", shape);
  // Gradients may take the place of the logits.
  if (!is_same_array(grad, arrays_.logits)) memory.add_input(arrays_.logits, "logits");
  memory.add_output(arrays_.grad_logits, "grad_logits");
  memory.check(options_.workspace);
}

void VocabLossPlan::propose(Proposal& proposal, const VocabLossPlan* plan) {
  const auto same = [&](const char* name, auto value) {
    proposal.same(name, plan ? static_cast<double>(value(*plan)) : 0);
  };
  using Plan = const VocabLossPlan&;
  same("operation (6, 7: parallel cross entropy, forward and backward)",
       [](Plan p) { return p.backward_ ? 7 : 6; });
  proposal.same_dtype("dtype", plan ? plan->arrays_.logits.dtype : NXD_DTYPE_F32);
  same("columns of the logits", [](Plan p) { return p.arrays_.logits.last(); });
  TokenLosses::propose(proposal, plan ? &plan->tokens_ : nullptr);
  same("digest of the shape of the logits",
       [](Plan p) { return digest_of(p.arrays_.logits.shape); });
}

kernels::LogitShard VocabLossPlan::shard(const int64_t* labels) const {
  kernels::LogitShard shard = logits_.read(
      scratch_, real_columns(arrays_.logits.last(), group_.rank(), tokens_.formula().vocab_size));
  shard.rows = rows();
  shard.targets = labels;
  shard.first = arrays_.logits.last() * group_.rank();
  return shard;
}

VocabLossForward::VocabLossForward(const ProcessGroup& group, const VocabLossArrays& arrays,
                                   const VocabLossOptions& options)
    : VocabLossPlan(group, false, arrays, options),
      statistics_(group, tokens_.wide(), rows(), scratch_),
      rows_block_(scratch_.reserve(rows(), 3, tokens_.wide(), Scratch::Use::kOwn)) {}

void VocabLossForward::run(GroupCalls& calls) const {
  if (tokens_.wide() == NXD_DTYPE_F64) return run_as<double>(calls);
  run_as<float>(calls);
}

template <class T>
void VocabLossForward::run_as(GroupCalls& calls) const {
  const int64_t* const labels = tokens_.labels(scratch_);
  const int64_t n = rows();
  statistics_.add(shard(labels), 0, scratch_);
  statistics_.exchange(calls, options_.operation, arrays_.logits.last(), scratch_, options_.key);
  T* const max = reinterpret_cast<T*>(scratch_.at(rows_block_));
  T* const log_sum = max + n;
  T* const losses = log_sum + n;
  statistics_.merge(0, n, arrays_.logits.last(), tokens_.smoothing(), scratch_, max, log_sum,
                    losses);
  if (arrays_.statistics) {
    const Array found = Array::dense(tokens_.wide(), tokens_.statistics_shape(), max);
    kernels::move_rows(found.rows(), arrays_.statistics->rows());
  }
  tokens_.write_loss(labels, losses, *arrays_.loss);
}

VocabLossBackward::VocabLossBackward(const ProcessGroup& group, const VocabLossArrays& arrays,
                                     const VocabLossOptions& options)
    : VocabLossPlan(group, true, arrays, options),
      direct_(false),
      rows_block_(scratch_.reserve(rows(), 3, tokens_.wide(), Scratch::Use::kOwn)) {
  const Array& grad = *arrays_.grad_logits;
  const std::optional<Matrix> matrix = dense_rows_of(grad);
  direct_ = matrix && kernel_dtype(grad.dtype) == grad.dtype;
  if (matrix) out_ = *matrix;
  // A copy of the logits is overwritten with their gradients.
  if (direct_ || logits_.copies()) return;
  out_block_ = scratch_.reserve(grad.count(), 1, grad.dtype, Scratch::Use::kOwn);
}

void VocabLossBackward::run(GroupCalls&) const {
  if (tokens_.wide() == NXD_DTYPE_F64) return run_as<double>();
  run_as<float>();
}

template <class T>
void VocabLossBackward::run_as() const {
  const Array& grad = *arrays_.grad_logits;
  const int64_t n = rows();
  const int64_t* const labels = tokens_.labels(scratch_);
  T* const max = reinterpret_cast<T*>(scratch_.at(rows_block_));
  T* const log_sum = max + n;
  T* const factors = log_sum + n;
  const Array known = Array::dense(tokens_.wide(), tokens_.statistics_shape(), max);
  kernels::move_rows(arrays_.statistics->rows(), known.rows());
  tokens_.read_factors(labels, arrays_.loss, factors);
  const kernels::LogitShard from = shard(labels);
  Array out = grad;
  if (!direct_ && logits_.copies()) out = logits_.copy(scratch_);
  if (!direct_ && !logits_.copies()) {
    out = Array::dense(grad.dtype, grad.shape, scratch_.at(out_block_));
  }
  const int64_t ld = direct_ ? out_.row_stride : grad.last();
  if constexpr (std::is_same_v<T, double>) {
    kernels::cross_entropy_backward(from, max, log_sum, factors, tokens_.smoothing().weight,
                                    tokens_.formula().vocab_size,
                                    reinterpret_cast<double*>(out.data), ld);
  } else {
    kernels::cross_entropy_backward(from, max, log_sum, factors, tokens_.smoothing().weight,
                                    tokens_.formula().vocab_size, out.dtype, out.data, ld);
  }
  const int last = grad.dims() - 1;
  const Array padding = out.part(last, from.cols, grad.last() - from.cols);
  kernels::zero_rows(padding.rows());
  if (!direct_) kernels::move_rows(out.rows(), grad.rows());
}

}  // namespace nxd
