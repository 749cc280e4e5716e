#include "core/tensor_parallel/stacked_parts.h"

#include <utility>

#include "core/base/dtype.h"

namespace nxd {
namespace {

int64_t count_of(const Array::Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

}  // namespace

StackedParts::StackedParts(const ProcessGroup& group, nxd_dtype_t dtype, Array::Shape part_shape,
                           int dim, Scratch& scratch)
    : ranks_(group.size()),
      rank_(group.rank()),
      dtype_(dtype),
      shape_(std::move(part_shape)),
      dim_(dim) {
  for (int d = 0; d < dim_; ++d) leading_ = leading_ && shape_[static_cast<size_t>(d)] == 1;
  block_ = scratch.reserve(count_of(shape_), ranks_, dtype, Scratch::Use::kExchanged);
}

Array StackedParts::part(const Scratch& scratch, int rank) const {
  const auto bytes = static_cast<size_t>(count_of(shape_)) * dtype_size(dtype_);
  return Array::dense(dtype_, shape_, scratch.at(block_) + bytes * static_cast<size_t>(rank));
}

Array StackedParts::whole(const Scratch& scratch) const {
  Array::Shape shape = shape_;
  shape[static_cast<size_t>(dim_)] *= ranks_;
  return Array::dense(dtype_, std::move(shape), scratch.at(block_));
}

void StackedParts::copy_to(const Array& whole, const Scratch& scratch) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Array from = part(scratch, rank), to = part_of_rank(whole, dim_, rank, ranks_);
    kernels::move_rows(from.rows(), to.rows());
  }
}

void StackedParts::copy_from(const Array& whole, const Scratch& scratch) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Array from = part_of_rank(whole, dim_, rank, ranks_), to = part(scratch, rank);
    kernels::move_rows(from.rows(), to.rows());
  }
}

Call StackedParts::gather(const Scratch& scratch) const {
  return Call::all_gather(part(scratch, rank_).data, scratch.at(block_),
                          static_cast<size_t>(count_of(shape_)), dtype_);
}

Call StackedParts::reduce_scatter(const Scratch& scratch, void* receive) const {
  return Call::reduce_scatter(scratch.at(block_), receive, static_cast<size_t>(count_of(shape_)),
                              dtype_, NXD_REDUCE_SUM);
}

Array part_of_rank(const Array& whole, int dim, int rank, int ranks) {
  const int64_t size = whole.size(dim) / ranks;
  return whole.part(dim, rank * size, size);
}

int checked_dim(int64_t dim, int dims, const char* name) {
  check_argument(dim >= -dims && dim < dims, name, ": expected a dimension of an array with ", dims,
                 " dimensions, got ", dim);
  return static_cast<int>(dim < 0 ? dim + dims : dim);
}

nxd_dtype_t partial_sum_dtype(nxd_dtype_t dtype) {
  return dtype_is_16_bit_float(dtype) ? NXD_DTYPE_F32 : dtype;
}

nxd_dtype_t exchanged_dtype(nxd_dtype_t dtype, nxd_dtype_t reduce_dtype) {
  const bool narrow = dtype == NXD_DTYPE_BF16 && reduce_dtype == NXD_DTYPE_BF16;
  return narrow ? NXD_DTYPE_BF16 : partial_sum_dtype(dtype);
}

}  // namespace nxd
