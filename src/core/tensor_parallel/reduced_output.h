#pragma once

#include <optional>

#include "core/tensor_parallel/stacked_parts.h"

namespace nxd {

// An output that is a sum over ranks: all of it, or this rank's part along one dimension.
class ReducedOutput {
 public:
  // dim: -1 for all of the sum. summands: their dtype. Partial sums of 16-bit floats are exchanged
  // in f32 (partial_sum_dtype), and the sum is rounded once; exact ones as they are.
  ReducedOutput(const ProcessGroup& group, const Array& out, int dim, nxd_dtype_t summands,
                const CallerWorkspace& workspace, Scratch& scratch);
  // This rank's summand, in C order, to be filled. It has all ranks' parts.
  Array summand(const Scratch& scratch) const;
  // The collective, once the summand is filled.
  Call call(const Scratch& scratch) const;
  // out = sum [+ bias], after the collective; bias: dense, of the output's dtype; may be null.
  void finish(const Scratch& scratch, const void* bias = nullptr) const;

 private:
  // The place of the sum: the output, if it can be there.
  Array sum(const Scratch& scratch) const;

  Array out_;
  int dim_, ranks_;
  nxd_dtype_t dtype_;  // of the summands
  bool in_place_;      // the collective writes to the output
  std::optional<StackedParts> stacked_;
  size_t summand_block_ = 0, sum_block_ = 0;
};

}  // namespace nxd
