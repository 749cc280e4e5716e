#include "core/tensor_parallel/vocab_parallel_embedding.h"

#include <utility>

#include "core/base/dtype.h"
#include "core/tensor_parallel/array_checks.h"

namespace nxd {

VocabEmbeddingPlan::VocabEmbeddingPlan(const ProcessGroup& group, bool backward,
                                       VocabEmbeddingArrays arrays,
                                       const VocabEmbeddingOptions& options)
    : group_(group),
      arrays_(std::move(arrays)),
      options_(options),
      backward_(backward),
      ids_(arrays_.ids, "ids", scratch_) {
  check_arrays();
  check_options();
  ids_.check_range(options_.num_embeddings, std::nullopt);
}

void VocabEmbeddingPlan::check_options() {
  const int64_t rows = arrays_.weight.size(0) * ranks();
  int64_t& count = options_.num_embeddings;
  check_argument(count >= 0 && count <= rows, "num_embeddings: expected 0 to ", rows,
                 ", the rows of all ranks, got ", count);
  if (count == 0) count = rows;
  const std::optional<int64_t>& padding = options_.padding_idx;
  check_argument(!padding || (*padding >= 0 && *padding < count), "padding_idx: expected ",
                 id_range(count), ", got ", padding.value_or(0));
}

void VocabEmbeddingPlan::check_arrays() {
  const char* const weight = backward_ ? "grad_weight" : "weight";
  const char* const y = backward_ ? "grad_y" : "y";
  if (backward_) {
    check_float(arrays_.y, y);
    check_grad_dtype(arrays_.weight, weight, arrays_.y.dtype, y);
  } else {
    check_float(arrays_.weight, weight);
    check_same_dtype(arrays_.y, y, arrays_.weight.dtype, weight);
  }
  check_argument(arrays_.weight.dims() == 2, weight, ": expected 2 dimensions, got the shape ",
                 shape_text(arrays_.weight.shape));
  Array::Shape expected = arrays_.ids.shape;
  expected.push_back(arrays_.weight.last());
  if (options_.sequence_parallel) {
    Array whole;
    whole.shape = expected;
    sequence_dim_ = checked_sequence_dim(options_.sequence_dim, whole, y);
    int64_t& size = expected[static_cast<size_t>(sequence_dim_)];
    check_argument(size % ranks() == 0, "ids: expected a size of dimension ", sequence_dim_,
                   " that divides by the ", ranks(), " ranks of group ", group_.name(),
                   ", got the shape ", shape_text(arrays_.ids.shape));
    size /= ranks();
  }
  check_shape(arrays_.y, y, expected);
  CallMemory memory;
  memory.add_input(arrays_.ids, "ids");
  if (backward_) {
    memory.add_input(arrays_.y, y);
    memory.add_output(arrays_.weight, weight);
  } else {
    memory.add_input(arrays_.weight, weight);
    memory.add_output(arrays_.y, y);
  }
  memory.check(options_.workspace);
}

void VocabEmbeddingPlan::propose(Proposal& proposal, const VocabEmbeddingPlan* plan) {
  const auto same = [&](const char* name, auto value) {
    proposal.same(name, plan ? static_cast<double>(value(*plan)) : 0);
  };
  using Plan = const VocabEmbeddingPlan&;
  same("operation (4, 5: vocabulary-parallel embedding, forward and backward)",
       [](Plan p) { return p.backward_ ? 5 : 4; });
  proposal.same_dtype("dtype", plan ? plan->arrays_.y.dtype : NXD_DTYPE_F32);
  same("accumulate_grads", [](Plan p) { return p.options_.accumulate_grads; });
  proposal.same_dtype("dtype of the weight", plan ? plan->arrays_.weight.dtype : NXD_DTYPE_F32);
  same("rows of the weight", [](Plan p) { return p.arrays_.weight.size(0); });
  same("columns of the weight", [](Plan p) { return p.arrays_.weight.last(); });
  same("num_embeddings", [](Plan p) { return p.options_.num_embeddings; });
  same("number of ids", [](Plan p) { return p.arrays_.ids.count(); });
  proposal.same_digest("digest of the ids", plan ? plan->ids_.digest() : 0);
  same("padding_idx (-1: none)", [](Plan p) { return p.options_.padding_idx.value_or(-1); });
  same("sequence_dim (-1: none)", [](Plan p) { return p.sequence_dim_; });
  same("size of sequence_dim",
       [](Plan p) { return p.splits_sequence() ? p.arrays_.y.size(p.sequence_dim_) : 0; });
  same("digest of the shape of the ids", [](Plan p) { return digest_of(p.arrays_.ids.shape); });
}

kernels::Ids VocabEmbeddingPlan::ids() const {
  const int64_t first = is_alone() ? 0 : arrays_.weight.size(0) * group_.rank();
  return {ids_.read(scratch_), arrays_.ids.count(), first, options_.padding_idx.value_or(-1)};
}

VocabEmbeddingForward::VocabEmbeddingForward(const ProcessGroup& group,
                                             const VocabEmbeddingArrays& arrays,
                                             const VocabEmbeddingOptions& options)
    : VocabEmbeddingPlan(group, false, arrays, options) {
  if (is_alone()) return;
  // All summands of an element but one are zero: their sum is exact in any dtype.
  reduced_y_.emplace(group_, arrays_.y, sequence_dim_, arrays_.y.dtype, options_.workspace,
                     scratch_);
}

void VocabEmbeddingForward::run(GroupCalls& calls) const {
  if (!reduced_y_) {
    return kernels::embedding_forward(arrays_.weight.rows(), ids(), arrays_.y.rows());
  }
  const Array summand = reduced_y_->summand(scratch_);
  kernels::embedding_forward(arrays_.weight.rows(), ids(), summand.rows());
  Call call = reduced_y_->call(scratch_);
  call.key = options_.key;
  calls.run(call);
  reduced_y_->finish(scratch_);
}

VocabEmbeddingBackward::VocabEmbeddingBackward(const ProcessGroup& group,
                                               const VocabEmbeddingArrays& arrays,
                                               const VocabEmbeddingOptions& options)
    : VocabEmbeddingPlan(group, true, arrays, options),
      in_place_(!dtype_is_16_bit_float(arrays_.weight.dtype)) {
  if (splits_sequence()) gathered_dy_.emplace(group_, arrays_.y, sequence_dim_, scratch_);
  if (in_place_) return;
  sums_block_ = scratch_.reserve(arrays_.weight.count(), 1, partial_sum_dtype(arrays_.weight.dtype),
                                 Scratch::Use::kOwn);
}

void VocabEmbeddingBackward::run(GroupCalls& calls) const {
  Array dy = arrays_.y;
  if (gathered_dy_) {
    calls.run(gathered_dy_->call(scratch_));
    dy = gathered_dy_->whole(scratch_);
  }
  const Array& grad = arrays_.weight;
  const Array sums =
      in_place_ ? grad
                : Array::dense(partial_sum_dtype(grad.dtype), grad.shape, scratch_.at(sums_block_));
  if (!in_place_ || !options_.accumulate_grads) kernels::zero_rows(sums.rows());
  kernels::embedding_backward(dy.rows(), ids(), sums.rows());
  if (in_place_) return;
  kernels::move_rows(sums.rows(), grad.rows(), nullptr, options_.accumulate_grads);
}

}  // namespace nxd
