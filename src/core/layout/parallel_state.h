#pragma once

#include <memory>

#include "core/comm/process_group.h"
#include "core/layout/rank_layout.h"

namespace nxd {

// The groups of one rank under one layout.
class ParallelState {
 public:
  ParallelState(RankLayout layout, int rank);

  const RankLayout& layout() const { return layout_; }
  nxd_dtype_t reduce_dtype() const { return layout_.reduce_dtype(); }
  int size(nxd_axis_t axis) const;
  int rank(nxd_axis_t axis) const;  // place in this rank's group along the axis
  int source_rank(nxd_axis_t axis) const;
  // World rank of the pipeline stage so many stages on; the stages form a ring.
  int pipeline_neighbour(int distance) const;
  std::shared_ptr<ProcessGroup> group(nxd_axis_t axis) const;

  // Set once per axis by Context::init_model_parallel.
  void set_group(nxd_axis_t axis, std::shared_ptr<ProcessGroup> group);

 private:
  RankLayout layout_;
  int rank_;
  std::shared_ptr<ProcessGroup> groups_[7];
};

}  // namespace nxd
