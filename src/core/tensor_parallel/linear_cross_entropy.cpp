#include "core/tensor_parallel/linear_cross_entropy.h"

#include <algorithm>
#include <utility>

#include "core/base/dtype.h"
#include "core/tensor_parallel/array_checks.h"
#include "core/tensor_parallel/parallel_cross_entropy.h"

namespace nxd {
namespace {

// The columns of all ranks' logits, once the arrays are known to have them.
int64_t all_columns(const LinearLossArrays& arrays, const LinearLossOptions& options, int ranks) {
  check_float(arrays.x, "x");
  check_argument(arrays.weight.dims() == 2, "weight: expected 2 dimensions, got the shape ",
                 shape_text(arrays.weight.shape));
  const int64_t cols = arrays.weight.size(options.transposed_weight ? 1 : 0);
  check_argument(cols > 0, "weight: expected at least 1 class of the vocabulary, got the shape ",
                 shape_text(arrays.weight.shape));
  return cols * ranks;
}

bool takes_sums(const Array& grad) { return grad.is_dense() && !dtype_is_16_bit_float(grad.dtype); }

size_t reserve_sums(const std::optional<Array>& grad, Scratch& scratch) {
  if (!grad || takes_sums(*grad)) return 0;
  return scratch.reserve(grad->count(), 1, partial_sum_dtype(grad->dtype), Scratch::Use::kOwn);
}

}  // namespace

LinearLossPlan::LinearLossPlan(const ProcessGroup& group, bool backward, LinearLossArrays arrays,
                               const LinearLossOptions& options)
    : group_(group),
      arrays_(std::move(arrays)),
      options_(options),
      tokens_(options, all_columns(arrays_, options, group.size()), arrays_.labels, arrays_.x.dtype,
              scratch_),
      weight_(arrays_.weight, scratch_),
      bias_(arrays_.bias, tokens_.wide(), scratch_),
      backward_(backward) {
  check_dtypes();
  check_shapes();
  check_memory();
  if (splits_sequence()) {
    gathered_x_.emplace(group_, arrays_.x, sequence_dim(), scratch_);
  } else {
    x_.emplace(arrays_.x, scratch_);
  }
  check_argument(options_.block_tokens >= 0, "block_tokens: expected 0 or more, got ",
                 options_.block_tokens);
  block_tokens_ = options_.block_tokens > 0 ? options_.block_tokens
                                            : kernels::logit_block_rows(tokens(), cols());
  block_tokens_ = std::min(block_tokens_, tokens());
  logits_block_ = scratch_.reserve(block_tokens_, cols(), tokens_.wide(), Scratch::Use::kOwn);
}

void LinearLossPlan::check_dtypes() const {
  const nxd_dtype_t dtype = arrays_.x.dtype;
  check_same_dtype(arrays_.weight, "weight", dtype, "x");
  if (arrays_.bias) check_same_dtype(*arrays_.bias, "bias", dtype, "x");
  if (arrays_.grad_x) check_same_dtype(*arrays_.grad_x, "grad_x", dtype, "x");
  check_grad_dtype(arrays_.grad_weight, "grad_weight", dtype, "x");
  check_grad_dtype(arrays_.grad_bias, "grad_bias", dtype, "x");
}

void LinearLossPlan::check_shapes() {
  const Array& x = arrays_.x;
  const int64_t in = arrays_.weight.size(options_.transposed_weight ? 0 : 1);
  check_argument(x.dims() >= 1 && x.last() == in, "x: expected ", in,
                 " features in the last dimension, got the shape ", shape_text(x.shape));
  Array::Shape tokens(x.shape.begin(), x.shape.end() - 1);
  if (options_.sequence_parallel) {
    options_.sequence_dim = checked_sequence_dim(options_.sequence_dim, x, "x");
    tokens[static_cast<size_t>(options_.sequence_dim)] *= group_.size();
  } else {
    options_.sequence_dim = -1;
  }
  check_shape(arrays_.labels, "labels", tokens);
  tokens_.check_statistics(arrays_.statistics, "x");
  tokens_.check_loss(arrays_.loss, backward_ ? "grad_loss" : "loss", "x");
  const auto check = [](const std::optional<Array>& array, const char* name,
                        const Array::Shape& expected) {
    if (array) check_shape(*array, name, expected);
  };
  check(arrays_.bias, "bias", {cols()});
  check(arrays_.grad_x, "grad_x", x.shape);
  check(arrays_.grad_weight, "grad_weight", arrays_.weight.shape);
  check(arrays_.grad_bias, "grad_bias", {cols()});
}

void LinearLossPlan::check_memory() const {
  CallMemory memory;
  memory.add_input(arrays_.x, "x");
  memory.add_input(arrays_.weight, "weight");
  memory.add_input(arrays_.bias, "bias");
  memory.add_input(arrays_.labels, "labels");
  if (backward_) {
    memory.add_input(arrays_.statistics, "statistics");
    memory.add_input(arrays_.loss, "grad_loss");
  } else {
    memory.add_output(arrays_.statistics, "statistics");
    memory.add_output(arrays_.loss, "loss");
  }
  memory.add_output(arrays_.grad_x, "grad_x");
  memory.add_output(arrays_.grad_weight, "grad_weight");
  memory.add_output(arrays_.grad_bias, "grad_bias");
  memory.check(options_.workspace);
}

void LinearLossPlan::propose(Proposal& proposal, const LinearLossPlan* plan) {
  const auto same = [&](const char* name, auto value) {
    proposal.same(name, plan ? static_cast<double>(value(*plan)) : 0);
  };
  using Plan = const LinearLossPlan&;
  same("operation (14, 15: linear cross entropy, forward and backward)",
       [](Plan p) { return p.backward_ ? 15 : 14; });
  proposal.same_dtype("dtype", plan ? plan->arrays_.x.dtype : NXD_DTYPE_F32);
  same("features", [](Plan p) { return p.features(); });
  same("classes of the weight", [](Plan p) { return p.cols(); });
  TokenLosses::propose(proposal, plan ? &plan->tokens_ : nullptr);
  same("sequence_dim (-1: none)", [](Plan p) { return p.sequence_dim(); });
  same("size of sequence_dim",
       [](Plan p) { return p.splits_sequence() ? p.arrays_.x.size(p.sequence_dim()) : 0; });
  same("digest of the shape of x", [](Plan p) { return digest_of(p.arrays_.x.shape); });
  same("transposed_weight", [](Plan p) { return p.options_.transposed_weight; });
  same("accumulate_grads", [](Plan p) { return p.options_.accumulate_grads; });
  same("block_tokens", [](Plan p) { return p.options_.block_tokens; });
  same("bias", [](Plan p) { return p.arrays_.bias.has_value(); });
  same("grad_x", [](Plan p) { return p.arrays_.grad_x.has_value(); });
  same("grad_weight", [](Plan p) { return p.arrays_.grad_weight.has_value(); });
  same("grad_bias", [](Plan p) { return p.arrays_.grad_bias.has_value(); });
  proposal.same_dtype("dtype of grad_weight",
                      plan ? grad_dtype(plan->arrays_.grad_weight) : NXD_DTYPE_F32);
  proposal.same_dtype("dtype of grad_bias",
                      plan ? grad_dtype(plan->arrays_.grad_bias) : NXD_DTYPE_F32);
}

template <class Body>
void LinearLossPlan::each_block(const Body& body) const {
  for (int64_t first = 0; first < tokens(); first += block_tokens_) {
    body(Block{first, std::min(block_tokens_, tokens() - first)});
  }
}

void LinearLossPlan::start_gather(GroupCalls& calls) const {
  if (gathered_x_) calls.run(gathered_x_->call(scratch_));
}

Operand LinearLossPlan::read_x() const {
  return gathered_x_ ? Operand::of_dense(gathered_x_->whole(scratch_)) : x_->read(scratch_);
}

int64_t LinearLossPlan::real_cols() const {
  return real_columns(cols(), group_.rank(), tokens_.formula().vocab_size);
}

Operand LinearLossPlan::read_weight() const {
  const Operand weight = weight_.read(scratch_);
  return options_.transposed_weight ? weight : weight.t();
}

Array LinearLossPlan::logits_array(int64_t count) const {
  return Array::dense(tokens_.wide(), {count, cols()}, scratch_.at(logits_block_));
}

kernels::LogitShard LinearLossPlan::logits(const Block& block, const Operand& x,
                                           const Operand& weight, const void* bias,
                                           const int64_t* labels) const {
  const Array to = logits_array(block.count);
  const nxd_dtype_t dtype = arrays_.x.dtype;
  write_product({dtype, x.from_row(block.first, dtype), weight, features()}, to, bias);
  kernels::LogitShard shard;
  shard.dtype = tokens_.wide();
  shard.rows = block.count;
  shard.cols = real_cols();
  shard.ld = cols();
  shard.logits = to.data;
  shard.targets = labels + block.first;
  shard.first = cols() * group_.rank();
  return shard;
}

LinearLossForward::LinearLossForward(const ProcessGroup& group, const LinearLossArrays& arrays,
                                     const LinearLossOptions& options)
    : LinearLossPlan(group, false, arrays, options),
      statistics_(group, tokens_.wide(), tokens(), scratch_),
      rows_block_(scratch_.reserve(tokens(), 3, tokens_.wide(), Scratch::Use::kOwn)) {}

void LinearLossForward::run(GroupCalls& calls) const {
  if (tokens_.wide() == NXD_DTYPE_F64) return run_as<double>(calls);
  run_as<float>(calls);
}

template <class T>
void LinearLossForward::run_as(GroupCalls& calls) const {
  start_gather(calls);
  const int64_t n = tokens();
  const int64_t* const labels = tokens_.labels(scratch_);
  const Operand x = read_x(), weight = read_weight();
  const void* const bias = bias_.read(scratch_);
  each_block([&](const Block& block) {
    statistics_.add(logits(block, x, weight, bias, labels), block.first, scratch_);
  });
  statistics_.exchange(calls, "linear_cross_entropy", cols(), scratch_);
  T* const max = reinterpret_cast<T*>(scratch_.at(rows_block_));
  T* const log_sum = max + n;
  T* const losses = log_sum + n;
  each_block([&](const Block& block) {
    statistics_.merge(block.first, block.count, cols(), tokens_.smoothing(), scratch_,
                      max + block.first, log_sum + block.first, losses + block.first);
  });
  if (arrays_.statistics) {
    const Array found = Array::dense(tokens_.wide(), tokens_.statistics_shape(), max);
    kernels::move_rows(found.rows(), arrays_.statistics->rows());
  }
  tokens_.write_loss(labels, losses, *arrays_.loss);
}

LinearLossBackward::LinearLossBackward(const ProcessGroup& group, const LinearLossArrays& arrays,
                                       const LinearLossOptions& options)
    : LinearLossPlan(group, true, arrays, options),
      rows_block_(scratch_.reserve(tokens(), 3, tokens_.wide(), Scratch::Use::kOwn)),
      weight_sums_(reserve_sums(arrays_.grad_weight, scratch_)),
      bias_sums_(reserve_sums(arrays_.grad_bias, scratch_)) {
  const nxd_dtype_t dtype = arrays_.x.dtype;
  if (dtype != tokens_.wide()) {
    narrow_block_ = scratch_.reserve(block_tokens_, cols(), dtype, Scratch::Use::kOwn);
  }
  if (!arrays_.grad_x) return;
  if (group_.size() > 1) {
    reduced_x_.emplace(group_, *arrays_.grad_x, sequence_dim(), exchanged_dtype(),
                       options_.workspace, scratch_);
  } else {
    dense_x_.emplace(arrays_.grad_x, dtype, arrays_.grad_x->shape, scratch_);
  }
}

void LinearLossBackward::run(GroupCalls& calls) const {
  if (tokens_.wide() == NXD_DTYPE_F64) return run_as<double>(calls);
  run_as<float>(calls);
}

Array LinearLossBackward::narrowed(const Array& dlogits) const {
  if (arrays_.x.dtype == dlogits.dtype) return dlogits;
  const Array narrow = Array::dense(arrays_.x.dtype, dlogits.shape, scratch_.at(narrow_block_));
  kernels::move_rows(dlogits.rows(), narrow.rows());
  return narrow;
}

Array LinearLossBackward::sums_of(const Array& grad, size_t block) const {
  if (takes_sums(grad)) return grad;
  return Array::dense(partial_sum_dtype(grad.dtype), grad.shape, scratch_.at(block));
}

void LinearLossBackward::finish(const std::optional<Array>& grad, size_t block) const {
  if (!grad) return;
  const Array sums = sums_of(*grad, block);
  const bool direct = takes_sums(*grad);
  if (tokens() == 0 && !(direct && options_.accumulate_grads)) kernels::zero_rows(sums.rows());
  if (!direct) kernels::move_rows(sums.rows(), grad->rows(), nullptr, options_.accumulate_grads);
}

void LinearLossBackward::add_block(const Block& block, const Array& dlogits, const Operand& x,
                                   const Operand& weight) const {
  const nxd_dtype_t dtype = arrays_.x.dtype;
  // Sums begin with the first block, unless they are added to a gradient where it lies.
  const auto adds = [&](const Array& grad) {
    return block.first > 0 || (options_.accumulate_grads && takes_sums(grad));
  };
  if (arrays_.grad_bias) {
    const Array& grad = *arrays_.grad_bias;
    kernels::sum_rows(dlogits.rows(), sums_of(grad, bias_sums_).rows(), adds(grad));
  }
  const Operand dy = Operand::of_dense(narrowed(dlogits));
  if (arrays_.grad_x) {
    const nxd_dtype_t to = reduced_x_ ? exchanged_dtype() : dtype;
    void* const data = reduced_x_ ? reduced_x_->summand(scratch_).data : dense_x_->data(scratch_);
    const Array dx = Array::dense(to, {tokens(), features()}, data);
    // Rows that pad the vocabulary are no part of the sum, whatever they hold, such as a NaN.
    write_product({dtype, dy, weight.t(), real_cols()}, dx.part(0, block.first, block.count));
  }
  if (!arrays_.grad_weight) return;
  const Operand rows = x.from_row(block.first, dtype);
  const Array& grad = *arrays_.grad_weight;
  const Product product = options_.transposed_weight ? Product{dtype, rows.t(), dy, block.count}
                                                     : Product{dtype, dy.t(), rows, block.count};
  write_product(product, sums_of(grad, weight_sums_), nullptr, adds(grad));
}

template <class T>
void LinearLossBackward::run_as(GroupCalls& calls) const {
  start_gather(calls);
  const int64_t n = tokens();
  const int64_t* const labels = tokens_.labels(scratch_);
  const Operand x = read_x(), weight = read_weight();
  const void* const bias = bias_.read(scratch_);
  T* const max = reinterpret_cast<T*>(scratch_.at(rows_block_));
  T* const log_sum = max + n;
  T* const factors = log_sum + n;
  const Array known = Array::dense(tokens_.wide(), tokens_.statistics_shape(), max);
  kernels::move_rows(arrays_.statistics->rows(), known.rows());
  tokens_.read_factors(labels, arrays_.loss, factors);
  each_block([&](const Block& block) {
    const kernels::LogitShard shard = logits(block, x, weight, bias, labels);
    const Array dlogits = logits_array(block.count);
    const int64_t first = block.first;
    if constexpr (std::is_same_v<T, double>) {
      kernels::cross_entropy_backward(shard, max + first, log_sum + first, factors + first,
                                      tokens_.smoothing().weight, tokens_.formula().vocab_size,
                                      reinterpret_cast<double*>(dlogits.data), cols());
    } else {
      kernels::cross_entropy_backward(shard, max + first, log_sum + first, factors + first,
                                      tokens_.smoothing().weight, tokens_.formula().vocab_size,
                                      dlogits.dtype, dlogits.data, cols());
    }
    kernels::zero_rows(dlogits.part(1, shard.cols, cols() - shard.cols).rows());
    add_block(block, dlogits, x, weight);
  });
  finish(arrays_.grad_weight, weight_sums_);
  finish(arrays_.grad_bias, bias_sums_);
  if (dense_x_) dense_x_->finish(scratch_);
  if (!reduced_x_) return;
  calls.run(reduced_x_->call(scratch_));
  reduced_x_->finish(scratch_);
}

}  // namespace nxd
