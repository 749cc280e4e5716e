// Orders of tasks for the ranks of a pipeline: GPipe, 1F1B (Narayanan et al. 2019 and 2021),
// interleaved 1F1B, and zero bubble H1 (Qi et al. 2024, arXiv:2401.10241).
//
// Zero bubble divides a backward pass. B makes the gradient of the stage's inputs, which the stage
// before waits for. W makes the gradients of the stage's weights, which no rank waits for. Where
// 1F1B would idle, a rank makes a W that it has put off.
//
// Example: three ranks, four microbatches, F, B and W of the same length, time to the right.
//   1F1B         rank 0   F0 F1 F2 .  .  .  .  B0 W0 F3 B1 W1 .  B2 W2 .  B3 W3
//                rank 1   .  F0 F1 .  .  B0 W0 F2 B1 W1 F3 B2 W2 .  B3 W3
//                rank 2   .  .  F0 B0 W0 F1 B1 W1 F2 B2 W2 F3 B3 W3
//   zero bubble  rank 0   F0 F1 F2 .  .  B0 W0 F3 B1 W1 B2 W2 B3 W3
//                rank 1   .  F0 F1 .  B0 F2 B1 W0 F3 B2 W1 B3 W2 W3
//                rank 2   .  .  F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3
// Rank r is r W's behind its B's. It therefore keeps r + (ranks - r) activations at most, which is
// what the first rank keeps under 1F1B. The lengths are only for the picture: a rank goes by its
// order, and waits where an input is late.
#include "core/schedule/schedule_builders.h"

#include <algorithm>
#include <cstdint>

#include "core/base/error.h"

namespace nxd {
namespace {

// The order in which chunks and microbatches take turns, for forward passes. As many microbatches
// as there are ranks go through a chunk before the next chunk begins. So the first rank's second
// chunk finds its input ready. The last group may be smaller.
PipelineTask forward_at(const PipelineShape& shape, int64_t place) {
  const int64_t group_size = int64_t{shape.ranks} * shape.chunks;
  const int64_t group = place / group_size;
  const int64_t in_group = place % group_size;
  const int first = static_cast<int>(group) * shape.ranks;
  const int width = std::min(shape.ranks, shape.microbatches - first);
  return {NXD_PP_TASK_FORWARD, first + static_cast<int>(in_group % width),
          static_cast<int>(in_group / width)};
}

// Backward passes take the chunks in reverse and the microbatches of each in order: their gradients
// are added up in the same order in every schedule, so the sums have the same bits.
PipelineTask backward_at(const PipelineShape& shape, int64_t place) {
  PipelineTask task = forward_at(shape, place);
  task.kind = NXD_PP_TASK_BACKWARD;
  task.chunk = shape.chunks - 1 - task.chunk;
  return task;
}

int64_t passes_of_rank(const PipelineShape& shape) {
  return int64_t{shape.chunks} * shape.microbatches;
}

// The number of forward passes that a rank makes before its first backward.
int64_t warmup(nxd_pp_schedule_kind_t kind, const PipelineShape& shape, int rank) {
  const int64_t all = passes_of_rank(shape);
  const int64_t later_ranks = shape.ranks - rank - 1;
  switch (kind) {
    case NXD_PP_SCHEDULE_1F1B:
    case NXD_PP_SCHEDULE_ZERO_BUBBLE: return std::min(later_ranks, all);
    case NXD_PP_SCHEDULE_INTERLEAVED:
      // NxD's and Megatron's rule: with one group of microbatches the steady phase would only wait.
      if (shape.microbatches == shape.ranks) return all;
      return std::min(later_ranks * 2 + int64_t{shape.chunks - 1} * shape.ranks, all);
    default: return all;
  }
}

// Warmup, then one forward and one backward in turn, then the backwards that are left.
std::vector<PipelineTask> alternating_tasks(const PipelineShape& shape, int64_t warm) {
  const int64_t all = passes_of_rank(shape);
  std::vector<PipelineTask> tasks;
  tasks.reserve(static_cast<size_t>(2 * all));
  for (int64_t i = 0; i < all; ++i) {
    tasks.push_back(forward_at(shape, i));
    if (i >= warm) tasks.push_back(backward_at(shape, i - warm));
  }
  for (int64_t i = all - warm; i < all; ++i) tasks.push_back(backward_at(shape, i));
  return tasks;
}

// ZB-H1: rank r puts its weight gradients off by r microbatches. All ranks then keep as many
// activations as the first one does under 1F1B, and these tasks fill the end of the pipeline.
std::vector<PipelineTask> zero_bubble_tasks(const PipelineShape& shape, int rank) {
  const int all = shape.microbatches;
  const int warm = static_cast<int>(warmup(NXD_PP_SCHEDULE_ZERO_BUBBLE, shape, rank));
  std::vector<PipelineTask> tasks;
  tasks.reserve(static_cast<size_t>(all) * 3);
  for (int i = 0; i < warm; ++i) tasks.push_back({NXD_PP_TASK_FORWARD, i, 0});
  for (int i = 0; i < all; ++i) {
    if (warm + i < all) tasks.push_back({NXD_PP_TASK_FORWARD, warm + i, 0});
    tasks.push_back({NXD_PP_TASK_INPUT_GRAD, i, 0});
    if (i >= rank) tasks.push_back({NXD_PP_TASK_WEIGHT_GRAD, i - rank, 0});
  }
  for (int i = std::max(all - rank, 0); i < all; ++i) {
    tasks.push_back({NXD_PP_TASK_WEIGHT_GRAD, i, 0});
  }
  return tasks;
}

std::vector<PipelineTask> inference_tasks(const PipelineShape& shape) {
  const int64_t all = passes_of_rank(shape);
  std::vector<PipelineTask> tasks;
  tasks.reserve(static_cast<size_t>(all));
  for (int64_t i = 0; i < all; ++i) tasks.push_back(forward_at(shape, i));
  return tasks;
}

}  // namespace

nxd_pp_schedule_kind_t resolve_schedule(nxd_pp_schedule_kind_t kind, const PipelineShape& shape) {
  check_shape(shape);
  check_argument(kind >= NXD_PP_SCHEDULE_DEFAULT && kind <= NXD_PP_SCHEDULE_INFERENCE,
                 "kind: expected an NXD_PP_SCHEDULE_*, got ", kind);
  if (kind == NXD_PP_SCHEDULE_DEFAULT) {
    kind = shape.chunks == 1 ? NXD_PP_SCHEDULE_1F1B : NXD_PP_SCHEDULE_INTERLEAVED;
  }
  if (kind == NXD_PP_SCHEDULE_1F1B || kind == NXD_PP_SCHEDULE_ZERO_BUBBLE) {
    check_argument(shape.chunks == 1, schedule_name(kind), ": expected 1 chunk on each rank, got ",
                   shape.chunks, " (several: interleaved)");
  }
  if (kind == NXD_PP_SCHEDULE_INTERLEAVED) {
    check_argument(shape.chunks >= 2, "interleaved: expected at least 2 chunks on each rank, got ",
                   shape.chunks, " (one: 1F1B)");
    check_argument(shape.microbatches % shape.ranks == 0,
                   "interleaved: num_microbatches must divide by the ", shape.ranks, " ranks, got ",
                   shape.microbatches);
  }
  return kind;
}

std::vector<PipelineTask> build_rank_tasks(nxd_pp_schedule_kind_t kind, const PipelineShape& shape,
                                           int rank) {
  if (kind == NXD_PP_SCHEDULE_INFERENCE) return inference_tasks(shape);
  if (kind == NXD_PP_SCHEDULE_ZERO_BUBBLE) return zero_bubble_tasks(shape, rank);
  return alternating_tasks(shape, warmup(kind, shape, rank));
}

int most_activations(nxd_pp_schedule_kind_t kind, const PipelineShape& shape, int rank) {
  if (kind == NXD_PP_SCHEDULE_INFERENCE) return 0;
  if (kind == NXD_PP_SCHEDULE_ZERO_BUBBLE) return std::min(shape.ranks, shape.microbatches);
  return static_cast<int>(std::min(warmup(kind, shape, rank) + 1, passes_of_rank(shape)));
}

const char* schedule_name(nxd_pp_schedule_kind_t kind) {
  switch (kind) {
    case NXD_PP_SCHEDULE_1F1B: return "1F1B";
    case NXD_PP_SCHEDULE_INTERLEAVED: return "interleaved 1F1B";
    case NXD_PP_SCHEDULE_GPIPE: return "GPipe";
    case NXD_PP_SCHEDULE_ZERO_BUBBLE: return "ZB-H1";
    case NXD_PP_SCHEDULE_INFERENCE: return "inference";
    default: return "default";
  }
}

}  // namespace nxd
