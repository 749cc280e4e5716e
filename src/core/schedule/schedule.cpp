#include "core/schedule/schedule.h"

#include <cstdint>
#include <utility>

#include "core/base/error.h"
#include "core/schedule/schedule_builders.h"
#include "core/schedule/schedule_verifier.h"

namespace nxd {
namespace {

// Bound over all stages and microbatches: some hundred MB of tasks.
constexpr int64_t kMostPasses = int64_t{1} << 22;

}  // namespace

void check_shape(const PipelineShape& shape) {
  check_argument(shape.ranks >= 1, "ranks: expected at least 1, got ", shape.ranks);
  check_argument(shape.chunks >= 1, "chunks: expected at least 1, got ", shape.chunks);
  check_argument(shape.microbatches >= 1, "num_microbatches: expected at least 1, got ",
                 shape.microbatches);
  const int64_t stages = int64_t{shape.ranks} * shape.chunks;
  check_argument(stages <= kMostPasses && stages * shape.microbatches <= kMostPasses,
                 "schedule: expected at most ", kMostPasses, " forward passes in all, got ",
                 shape.ranks, " ranks x ", shape.chunks, " chunks x ", shape.microbatches,
                 " microbatches");
}

Schedule Schedule::make(nxd_pp_schedule_kind_t kind, const PipelineShape& shape) {
  const nxd_pp_schedule_kind_t resolved = resolve_schedule(kind, shape);
  std::vector<std::vector<PipelineTask>> tasks;
  tasks.reserve(static_cast<size_t>(shape.ranks));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    tasks.push_back(build_rank_tasks(resolved, shape, rank));
  }
  Schedule schedule = of_tasks(shape, std::move(tasks));
  schedule.name_ = schedule_name(resolved);
  return schedule;
}

Schedule Schedule::of_tasks(const PipelineShape& shape,
                            std::vector<std::vector<PipelineTask>> tasks_by_rank) {
  check_shape(shape);
  verify_schedule(shape, tasks_by_rank);
  Schedule schedule;
  schedule.shape_ = shape;
  for (const auto& tasks : tasks_by_rank) {
    for (const PipelineTask& task : tasks) {
      schedule.has_backward_ |= task.kind != NXD_PP_TASK_FORWARD;
      schedule.splits_backward_ |= task.kind == NXD_PP_TASK_INPUT_GRAD;
    }
  }
  schedule.tasks_ = std::move(tasks_by_rank);
  schedule.name_ = "custom";
  return schedule;
}

const char* task_name(nxd_pp_task_kind_t kind) {
  switch (kind) {
    case NXD_PP_TASK_FORWARD: return "forward";
    case NXD_PP_TASK_BACKWARD: return "backward";
    case NXD_PP_TASK_INPUT_GRAD: return "input gradient";
    case NXD_PP_TASK_WEIGHT_GRAD: return "weight gradient";
    default: return "unknown task";
  }
}

}  // namespace nxd
