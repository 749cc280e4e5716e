#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/optim/bucket_plan.h"
#include "core/optim/parameter_source.h"
#include "core/optim/state_block.h"

namespace nxd {

// State that an optimizer keeps for the parameters that this rank updates.
class OptimizerState {
 public:
  using Block = StateBlock;

  // Consecutive elements of a span as random bits see them: rows of a tensor of all ranks, whose
  // elements lie at first, first + row_stride and so on; see kernels::RoundingSource.
  struct RandomSpan {
    int64_t begin;  // within the span
    int64_t count;
    uint64_t first;
    int64_t cols;
    int64_t row_stride;
  };

  // A parameter, or a span of its elements that lies in this rank's part of a bucket.
  struct Span {
    size_t parameter = 0;
    int64_t begin = 0;  // within this rank's shard
    int64_t count = 0;
    // Elements that states have room for, zeros behind those of the span: parts that are alike have
    // one size on every rank, also where a parameter's elements end before.
    int64_t room = 0;
    int bucket = -1;  // of a part
    int64_t bucket_offset = 0;
    int64_t updates = 0;
    // Made at the first update; of the dtype of state_dtype().
    std::vector<Block> states;
    Block master;
    std::vector<RandomSpan> random_spans;  // made when asked for
  };

  explicit OptimizerState(std::vector<Span> spans) : spans_(std::move(spans)) {}
  // Every parameter whole.
  explicit OptimizerState(const ParameterSource& source);
  // The rank-th parts of all buckets.
  OptimizerState(const ParameterSource& source, const BucketPlan& plan, int rank);

  std::vector<Span>& spans() { return spans_; }
  const std::vector<Span>& spans() const { return spans_; }
  // F64 for F64, else F32.
  static nxd_dtype_t state_dtype(const ParameterInfo& info);

  bool is_shared() const;  // some of the memory
  // Makes the memory of all states this state's alone, as it must be before it is written. Throws
  // OUT_OF_MEMORY; no content changes then, either.
  void make_own();

  // Makes a span's states, as zeros, when it has none yet.
  static void make_states(Span& span, const ParameterInfo& info, size_t count);
  // Memory for a span's room in the state's dtype, as zeros.
  static Block make_block(const Span& span, const ParameterInfo& info);
  static const std::vector<RandomSpan>& random_spans(Span& span, const ParameterInfo& info);

  uint64_t bytes(const ParameterSource& source) const;

 private:
  std::vector<Span> spans_;
};

}  // namespace nxd
