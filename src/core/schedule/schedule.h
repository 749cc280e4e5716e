#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "nxd.h"

namespace nxd {

// One computation of one rank; communication follows from it: see source_of in task_walk.h.
struct PipelineTask {
  nxd_pp_task_kind_t kind = NXD_PP_TASK_FORWARD;
  int microbatch = 0;
  int chunk = 0;

  bool operator==(const PipelineTask&) const = default;
};

// Stages that follow one another in the model: stage s is chunk s / ranks of rank s % ranks.
struct PipelineShape {
  int ranks = 1;
  int chunks = 1;  // of each rank
  int microbatches = 1;

  int stages() const { return ranks * chunks; }
  int rank_of(int stage) const { return stage % ranks; }
  int chunk_of(int stage) const { return stage / ranks; }
  int stage_of(int rank, int chunk) const { return chunk * ranks + rank; }
  bool operator==(const PipelineShape&) const = default;
};

// INVALID_ARGUMENT for sizes below 1, and for more tasks than any machine runs.
void check_shape(const PipelineShape& shape);

// The computations of each rank of a pipeline, and their order. A value: every schedule that exists
// is complete and cannot deadlock.
class Schedule {
 public:
  // One of the library's own. INVALID_ARGUMENT where the shape does not admit it.
  static Schedule make(nxd_pp_schedule_kind_t kind, const PipelineShape& shape);
  // A caller's, checked by verify_schedule, as those of make are.
  static Schedule of_tasks(const PipelineShape& shape,
                           std::vector<std::vector<PipelineTask>> tasks_by_rank);

  const PipelineShape& shape() const { return shape_; }
  const std::vector<PipelineTask>& tasks(int rank) const {
    return tasks_[static_cast<size_t>(rank)];
  }
  const std::vector<std::vector<PipelineTask>>& tasks() const { return tasks_; }
  bool has_backward() const { return has_backward_; }
  // Some backward passes are made in two parts.
  bool splits_backward() const { return splits_backward_; }
  const std::string& name() const { return name_; }  // such as "1F1B"

 private:
  Schedule() = default;

  PipelineShape shape_;
  std::vector<std::vector<PipelineTask>> tasks_;
  bool has_backward_ = false, splits_backward_ = false;
  std::string name_;
};

// "forward", "backward", "input gradient" or "weight gradient".
const char* task_name(nxd_pp_task_kind_t kind);

}  // namespace nxd
