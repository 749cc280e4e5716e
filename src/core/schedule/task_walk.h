#pragma once

#include <cstdint>
#include <vector>

#include "core/schedule/schedule.h"

namespace nxd {

// A forward or backward pass of a stage: what other ranks wait for.
struct StagePass {
  bool forward = true;
  int stage = -1;  // -1: none
  int microbatch = 0;
};

// The pass of another stage that must end before the task begins: forward passes wait for the stage
// before, passes that make input gradients for the stage after.
inline StagePass source_of(const PipelineShape& shape, int rank, const PipelineTask& task) {
  const int stage = shape.stage_of(rank, task.chunk);
  if (task.kind == NXD_PP_TASK_FORWARD) return {true, stage - 1, task.microbatch};
  const bool waits = task.kind != NXD_PP_TASK_WEIGHT_GRAD && stage + 1 < shape.stages();
  return {false, waits ? stage + 1 : -1, task.microbatch};
}

// Index of a pass into a table of shape.stages() * shape.microbatches entries.
inline size_t pass_index(const PipelineShape& shape, int stage, int microbatch) {
  return static_cast<size_t>(stage) * static_cast<size_t>(shape.microbatches) +
         static_cast<size_t>(microbatch);
}

// Visits the tasks of all ranks, in an order in which each comes after those before it on its rank
// and after its source: visit(rank, task). In time of the tasks. Returns how many each rank has
// made: fewer than it has where ranks wait for one another in a circle.
template <class Visit>
std::vector<size_t> walk_tasks(const PipelineShape& shape,
                               const std::vector<std::vector<PipelineTask>>& tasks_by_rank,
                               Visit&& visit) {
  const size_t passes = pass_index(shape, shape.stages(), 0);
  std::vector<uint8_t> forward_done(passes, 0), backward_done(passes, 0);
  std::vector<size_t> made(tasks_by_rank.size(), 0);
  std::vector<int> runnable;
  for (int rank = shape.ranks; rank-- > 0;) runnable.push_back(rank);

  const auto is_ready = [&](const StagePass& source) {
    if (source.stage < 0) return true;
    const auto& done = source.forward ? forward_done : backward_done;
    return done[pass_index(shape, source.stage, source.microbatch)] != 0;
  };
  // At most one rank waits for a pass, the one of the next stage, and only with its next task.
  const auto wake = [&](bool forward, int stage, int microbatch, int self) {
    const int next = forward ? stage + 1 : stage - 1;
    if (next < 0 || next >= shape.stages()) return;
    const int rank = shape.rank_of(next);
    const auto& tasks = tasks_by_rank[static_cast<size_t>(rank)];
    const size_t at = made[static_cast<size_t>(rank)];
    if (rank == self || at == tasks.size()) return;
    const StagePass source = source_of(shape, rank, tasks[at]);
    if (source.stage == stage && source.forward == forward && source.microbatch == microbatch) {
      runnable.push_back(rank);
    }
  };
  while (!runnable.empty()) {
    const int rank = runnable.back();
    runnable.pop_back();
    const auto& tasks = tasks_by_rank[static_cast<size_t>(rank)];
    size_t& at = made[static_cast<size_t>(rank)];
    while (at < tasks.size() && is_ready(source_of(shape, rank, tasks[at]))) {
      const PipelineTask& task = tasks[at];
      visit(rank, task);
      ++at;
      if (task.kind == NXD_PP_TASK_WEIGHT_GRAD) continue;
      const bool forward = task.kind == NXD_PP_TASK_FORWARD;
      const int stage = shape.stage_of(rank, task.chunk);
      (forward ? forward_done : backward_done)[pass_index(shape, stage, task.microbatch)] = 1;
      wake(forward, stage, task.microbatch, rank);
    }
  }
  return made;
}

}  // namespace nxd
