#pragma once

#include "core/tensor_parallel/group_calls.h"
#include "core/tensor_parallel/reduced_output.h"

namespace nxd {

// An operation of a mapping between regions on an array, along a dimension.
enum class RegionMove { kCopy, kAllReduce, kSplit, kAllGather, kReduceScatter };

struct RegionMoves {
  RegionMove forward, backward;
};
RegionMoves region_moves(nxd_region_mapping_t mapping);

// One pass of a mapping, from one array to another. A plan for run_layer().
class RegionMapping {
 public:
  // Names are for errors, such as "grad_y". dim: of both arrays, from the end when negative.
  struct Names {
    const char *from, *to;
  };
  RegionMapping(const ProcessGroup& group, RegionMove move, int64_t dim, const Array& from,
                const Array& to, const Names& names);

  void allocate() { scratch_.allocate(group_, {}); }
  static void propose(Proposal& proposal, const RegionMapping* plan);
  int collectives() const { return reduced_ || stacked_ ? 1 : 0; }
  void run(GroupCalls& calls) const;

 private:
  bool uses_dim() const { return move_ != RegionMove::kCopy && move_ != RegionMove::kAllReduce; }
  void check(int64_t dim, const Names& names);
  void reduce(GroupCalls& calls) const;

  const ProcessGroup& group_;
  RegionMove move_;
  int dim_ = -1;
  Array from_, to_;
  Scratch scratch_;
  std::optional<StackedParts> stacked_;   // of a gather
  std::optional<ReducedOutput> reduced_;  // of a sum
};

}  // namespace nxd
