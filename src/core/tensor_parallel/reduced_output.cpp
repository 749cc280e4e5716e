#include "core/tensor_parallel/reduced_output.h"

#include <utility>

#include "core/base/dtype.h"
#include "core/comm/memory/arena.h"

namespace nxd {
namespace {

// Peers read sums faster in an arena than in a caller's memory, by more than a copy takes.
bool is_better_in_arena(const ProcessGroup& group, const Array& out) {
  const std::shared_ptr<Arena> arena = group.arena();
  if (!arena || !out.data) return false;
  const auto bytes = static_cast<size_t>(out.count()) * dtype_size(out.dtype);
  return arena->find(out.data, bytes).inode == 0;
}

}  // namespace

ReducedOutput::ReducedOutput(const ProcessGroup& group, const Array& out, int dim,
                             nxd_dtype_t summands, const CallerWorkspace& workspace,
                             Scratch& scratch)
    : out_(out),
      dim_(dim),
      ranks_(group.size()),
      dtype_(summands),
      in_place_(out.is_dense() && out.dtype == dtype_) {
  const int64_t count = out.count();
  if (dim_ < 0) {
    in_place_ = in_place_ && (workspace.given || !is_better_in_arena(group, out));
    if (!in_place_) summand_block_ = scratch.reserve(count, 1, dtype_, Scratch::Use::kExchanged);
    return;
  }
  stacked_.emplace(group, dtype_, out.shape, dim_, scratch);
  if (!stacked_->is_whole()) {
    summand_block_ = scratch.reserve(count, ranks_, dtype_, Scratch::Use::kOwn);
  }
  if (!in_place_) sum_block_ = scratch.reserve(count, 1, dtype_, Scratch::Use::kOwn);
}

Array ReducedOutput::summand(const Scratch& scratch) const {
  if (dim_ < 0) return sum(scratch);
  if (stacked_->is_whole()) return stacked_->whole(scratch);
  Array::Shape shape = out_.shape;
  shape[static_cast<size_t>(dim_)] *= ranks_;
  return Array::dense(dtype_, std::move(shape), scratch.at(summand_block_));
}

Array ReducedOutput::sum(const Scratch& scratch) const {
  if (in_place_) return Array::dense(dtype_, out_.shape, out_.data);
  return Array::dense(dtype_, out_.shape, scratch.at(dim_ < 0 ? summand_block_ : sum_block_));
}

Call ReducedOutput::call(const Scratch& scratch) const {
  const Array sum = this->sum(scratch);
  if (dim_ < 0) {
    return Call::all_reduce(sum.data, sum.data, static_cast<size_t>(sum.count()), dtype_,
                            NXD_REDUCE_SUM);
  }
  if (!stacked_->is_whole()) stacked_->copy_from(summand(scratch), scratch);
  return stacked_->reduce_scatter(scratch, sum.data);
}

void ReducedOutput::finish(const Scratch& scratch, const void* bias) const {
  if (in_place_ && !bias) return;
  const Array sum = this->sum(scratch);
  kernels::move_rows(sum.rows(), out_.rows(), bias);
}

}  // namespace nxd
