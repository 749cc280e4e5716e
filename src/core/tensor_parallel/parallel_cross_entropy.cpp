#include "core/tensor_parallel/parallel_cross_entropy.h"

#include <algorithm>
#include <utility>

#include "core/base/dtype.h"
#include "core/tensor_parallel/array_checks.h"

namespace nxd {
namespace {

std::optional<Matrix> dense_rows_of(const Array& array) {
  const std::optional<Matrix> matrix = as_matrix(array);
  return matrix && matrix->col_stride == 1 ? matrix : std::nullopt;
}

// The dtype in which kernels take logits.
nxd_dtype_t kernel_dtype(nxd_dtype_t dtype) {
  return dtype == NXD_DTYPE_F16 ? NXD_DTYPE_F32 : dtype;
}

Array::Shape rows_shape(const Array& labels, int64_t values) {
  Array::Shape shape = labels.shape;
  shape.insert(shape.begin(), values);
  return shape;
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

VocabLossPlan::VocabLossPlan(const ProcessGroup& group, bool backward, VocabLossArrays arrays,
                             const VocabLossOptions& options)
    : group_(group),
      arrays_(std::move(arrays)),
      options_(options),
      labels_(arrays_.labels, "labels", scratch_),
      logits_(arrays_.logits, scratch_),
      backward_(backward) {
  check_float(arrays_.logits, "logits");
  check_argument(arrays_.logits.dims() >= 1 && arrays_.logits.last() > 0,
                 "logits: expected at least 1 column of the vocabulary, got the shape ",
                 shape_text(arrays_.logits.shape));
  check_options();
  check_arrays();
  labels_.check_range(options_.vocab_size, options_.ignore_index);
}

void VocabLossPlan::check_options() {
  const int64_t cols = arrays_.logits.last() * group_.size();
  int64_t& vocabulary = options_.vocab_size;
  check_argument(vocabulary >= 0 && vocabulary <= cols, "vocab_size: expected 0 to ", cols,
                 ", the columns of all ranks, got ", vocabulary);
  if (vocabulary == 0) vocabulary = cols;
}

void VocabLossPlan::check_arrays() const {
  const char* const loss = backward_ ? "grad_loss" : "loss";
  const Array::Shape& shape = arrays_.logits.shape;
  check_shape(arrays_.labels, "labels", Array::Shape(shape.begin(), shape.end() - 1));
  const auto check_rows = [&](const std::optional<Array>& array, const char* name,
                              const Array::Shape& expected) {
    if (!array) return;
    check_argument(array->dtype == logits_.wide(), name, ": expected ", dtype_name(logits_.wide()),
                   " for logits of ", dtype_name(arrays_.logits.dtype), ", got ",
                   dtype_name(array->dtype));
    check_shape(*array, name, expected);
  };
  const bool each = options_.reduction == NXD_REDUCTION_NONE;
  check_rows(arrays_.statistics, "statistics", rows_shape(arrays_.labels, 2));
  check_rows(arrays_.loss, loss, each ? arrays_.labels.shape : Array::Shape{});
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
  check_same_dtype(grad, "grad_logits", arrays_.logits.dtype, "logits");
  check_shape(grad, "grad_logits", shape);
  // Gradients may take the place of the logits.
  const bool in_place = grad.data == arrays_.logits.data && grad.strides == arrays_.logits.strides;
  if (!in_place) memory.add_input(arrays_.logits, "logits");
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
  same("dtype", [](Plan p) { return p.arrays_.logits.dtype; });
  same("columns of the logits", [](Plan p) { return p.arrays_.logits.last(); });
  same("vocab_size", [](Plan p) { return p.options_.vocab_size; });
  same("number of labels", [](Plan p) { return p.rows(); });
  same("digest of the labels", [](Plan p) { return p.labels_.digest(); });
  same("label_smoothing", [](Plan p) { return p.options_.label_smoothing; });
  same("smoothing", [](Plan p) { return p.options_.smoothing; });
  same("reduction", [](Plan p) { return p.options_.reduction; });
  same("ignore_index", [](Plan p) { return p.options_.ignore_index; });
}

int64_t VocabLossPlan::real_cols() const {
  const int64_t cols = arrays_.logits.last();
  return std::clamp<int64_t>(options_.vocab_size - cols * group_.rank(), 0, cols);
}

double VocabLossPlan::smoothing() const {
  const auto v = static_cast<double>(options_.vocab_size);
  const bool megatron = options_.smoothing == NXD_SMOOTHING_MEGATRON && v > 1;
  return options_.label_smoothing * (megatron ? v / (v - 1) : 1);
}

kernels::LogitShard VocabLossPlan::shard(const int64_t* labels) const {
  kernels::LogitShard shard = logits_.read(scratch_, real_cols());
  shard.rows = rows();
  shard.targets = labels;
  shard.first = arrays_.logits.last() * group_.rank();
  return shard;
}

double VocabLossPlan::divisor(const int64_t* labels) const {
  if (options_.reduction != NXD_REDUCTION_MEAN) return 1;
  int64_t valid = 0;
  for (int64_t r = 0; r < rows(); ++r) valid += is_ignored(labels[r]) ? 0 : 1;
  return static_cast<double>(std::max<int64_t>(valid, 1));
}

VocabLossForward::VocabLossForward(const ProcessGroup& group, const VocabLossArrays& arrays,
                                   const VocabLossOptions& options)
    : VocabLossPlan(group, false, arrays, options),
      shards_(group, logits_.wide(), {kernels::kRowStatistics * rows()}, 0, scratch_),
      rows_block_(scratch_.reserve(rows(), 3, logits_.wide(), Scratch::Use::kOwn)) {}

void VocabLossForward::run(GroupCalls& calls) const {
  if (logits_.wide() == NXD_DTYPE_F64) return run_as<double>(calls);
  run_as<float>(calls);
}

template <class T>
void VocabLossForward::run_as(GroupCalls& calls) const {
  const int64_t* const labels = labels_.read(scratch_);
  const int64_t n = rows();
  kernels::cross_entropy_statistics(
      shard(labels), reinterpret_cast<T*>(shards_.part(scratch_, group_.rank()).data));
  if (group_.size() > 1) calls.run(shards_.gather(scratch_));
  T* const max = reinterpret_cast<T*>(scratch_.at(rows_block_));
  T* const log_sum = max + n;
  T* const losses = log_sum + n;
  kernels::cross_entropy_merge(
      group_.size(), n, reinterpret_cast<const T*>(shards_.part(scratch_, 0).data),
      kernels::kRowStatistics * n, smoothing(), options_.vocab_size, max, log_sum, losses);
  if (arrays_.statistics) {
    const Array found = Array::dense(logits_.wide(), rows_shape(arrays_.labels, 2), max);
    kernels::move_rows(found.rows(), arrays_.statistics->rows());
  }
  write_loss(labels, losses);
}

template <class T>
void VocabLossForward::write_loss(const int64_t* labels, T* losses) const {
  double sum = 0;
  for (int64_t r = 0; r < rows(); ++r) {
    if (is_ignored(labels[r])) losses[r] = 0;
    sum += static_cast<double>(losses[r]);
  }
  if (options_.reduction == NXD_REDUCTION_NONE) {
    const Array each = Array::dense(logits_.wide(), arrays_.labels.shape, losses);
    return kernels::move_rows(each.rows(), arrays_.loss->rows());
  }
  *reinterpret_cast<T*>(arrays_.loss->data) = static_cast<T>(sum / divisor(labels));
}

VocabLossBackward::VocabLossBackward(const ProcessGroup& group, const VocabLossArrays& arrays,
                                     const VocabLossOptions& options)
    : VocabLossPlan(group, true, arrays, options),
      direct_(false),
      rows_block_(scratch_.reserve(rows(), 3, logits_.wide(), Scratch::Use::kOwn)) {
  const Array& grad = *arrays_.grad_logits;
  const std::optional<Matrix> matrix = dense_rows_of(grad);
  direct_ = matrix && kernel_dtype(grad.dtype) == grad.dtype;
  if (matrix) out_ = *matrix;
  // A copy of the logits is overwritten with their gradients.
  if (direct_ || logits_.copies()) return;
  out_block_ = scratch_.reserve(grad.count(), 1, grad.dtype, Scratch::Use::kOwn);
}

void VocabLossBackward::run(GroupCalls&) const {
  if (logits_.wide() == NXD_DTYPE_F64) return run_as<double>();
  run_as<float>();
}

template <class T>
void VocabLossBackward::run_as() const {
  const Array& grad = *arrays_.grad_logits;
  const int64_t n = rows();
  const int64_t* const labels = labels_.read(scratch_);
  T* const max = reinterpret_cast<T*>(scratch_.at(rows_block_));
  T* const log_sum = max + n;
  T* const factors = log_sum + n;
  const Array known = Array::dense(logits_.wide(), rows_shape(arrays_.labels, 2), max);
  kernels::move_rows(arrays_.statistics->rows(), known.rows());
  read_factors(labels, factors);
  const kernels::LogitShard from = shard(labels);
  Array out = grad;
  if (!direct_ && logits_.copies()) out = logits_.copy(scratch_);
  if (!direct_ && !logits_.copies()) {
    out = Array::dense(grad.dtype, grad.shape, scratch_.at(out_block_));
  }
  const int64_t ld = direct_ ? out_.row_stride : grad.last();
  if constexpr (std::is_same_v<T, double>) {
    kernels::cross_entropy_backward(from, max, log_sum, factors, smoothing(), options_.vocab_size,
                                    reinterpret_cast<double*>(out.data), ld);
  } else {
    kernels::cross_entropy_backward(from, max, log_sum, factors, smoothing(), options_.vocab_size,
                                    out.dtype, out.data, ld);
  }
  const int last = grad.dims() - 1;
  const Array padding = out.part(last, from.cols, grad.last() - from.cols);
  kernels::zero_rows(padding.rows());
  if (!direct_) kernels::move_rows(out.rows(), grad.rows());
}

template <class T>
void VocabLossBackward::read_factors(const int64_t* labels, T* factors) const {
  const auto share = static_cast<T>(1 / divisor(labels));
  const bool each = options_.reduction == NXD_REDUCTION_NONE;
  if (arrays_.loss && each) {
    const Array to = Array::dense(logits_.wide(), arrays_.labels.shape, factors);
    kernels::move_rows(arrays_.loss->rows(), to.rows());
  }
  const T all = arrays_.loss && !each ? *reinterpret_cast<const T*>(arrays_.loss->data) : T{1};
  for (int64_t r = 0; r < rows(); ++r) {
    if (!arrays_.loss || !each) factors[r] = all * share;
    if (is_ignored(labels[r])) factors[r] = 0;
  }
}

}  // namespace nxd
