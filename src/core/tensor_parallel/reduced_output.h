#pragma once

#include <optional>

#include "core/tensor_parallel/stacked_parts.h"

namespace nxd {

// An output that is a sum over ranks: all of it, or this rank's part along one dimension. 16-bit
// floats are summed in f32, and rounded once.
class ReducedOutput {
 public:
  // dim: -1 for all of the sum. With exact summands, no two of which are other than zero, any dtype
  // is summed as it is.
  enum class Summands { kAny, kExact };
  ReducedOutput(const ProcessGroup& group, const Array& out, int dim,
                const CallerWorkspace& workspace, Scratch& scratch,
                Summands summands = Summands::kAny);
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
  nxd_dtype_t dtype_;  // of the sums
  bool in_place_;      // the collective writes to the output
  std::optional<StackedParts> stacked_;
  size_t summand_block_ = 0, sum_block_ = 0;
};

}  // namespace nxd
