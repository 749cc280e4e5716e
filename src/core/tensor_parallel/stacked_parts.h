#pragma once

#include "core/comm/process_group.h"
#include "core/tensor_parallel/array.h"
#include "core/tensor_parallel/scratch.h"

namespace nxd {

// The parts that the ranks of a group have of an array along one dimension, one after another in
// the ranks' order: the form in which they are gathered, and scattered.
class StackedParts {
 public:
  StackedParts(const ProcessGroup& group, nxd_dtype_t dtype, Array::Shape part_shape, int dim,
               Scratch& scratch);

  // One rank's part, in C order.
  Array part(const Scratch& scratch, int rank) const;
  // The parts are the whole array as they lie.
  bool is_whole() const { return leading_; }
  Array whole(const Scratch& scratch) const;  // then

  // Copies between the parts and the whole array, of any strides.
  void copy_to(const Array& whole, const Scratch& scratch) const;
  void copy_from(const Array& whole, const Scratch& scratch) const;

  // The collectives: this rank's part to all; sums of the parts to their ranks.
  Call gather(const Scratch& scratch) const;
  Call reduce_scatter(const Scratch& scratch, void* receive) const;

 private:
  int ranks_, rank_;
  nxd_dtype_t dtype_;
  Array::Shape shape_;  // of a part
  int dim_;
  bool leading_ = true;
  size_t block_;
};

// The range of a dimension that one rank has of the whole.
Array part_of_rank(const Array& whole, int dim, int rank, int ranks);

// A dimension that may be counted from the end; INVALID_ARGUMENT unless it is 0 ... dims - 1.
int checked_dim(int64_t dim, int dims, const char* name);

// The dtype of partial sums, such as those that several ranks exchange: f32 for 16-bit floats.
nxd_dtype_t partial_sum_dtype(nxd_dtype_t dtype);

// The dtype in which ranks exchange partial sums of a linear layer of this dtype. reduce_dtype: of
// those in bf16, F32 or BF16.
nxd_dtype_t exchanged_dtype(nxd_dtype_t dtype, nxd_dtype_t reduce_dtype);

}  // namespace nxd
