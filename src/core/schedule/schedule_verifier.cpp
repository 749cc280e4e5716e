#include "core/schedule/schedule_verifier.h"

#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "core/schedule/task_walk.h"

namespace nxd {
namespace {

using TaskLists = std::vector<std::vector<PipelineTask>>;

std::string describe(int rank, const PipelineTask& task) {
  return text("rank ", rank, " ", task_name(task.kind), " of microbatch ", task.microbatch,
              ", chunk ", task.chunk);
}

// Verifies the list of one rank, without the others.
class RankVerifier {
 public:
  RankVerifier(const PipelineShape& shape, int rank, const std::vector<PipelineTask>& tasks,
               bool trains)
      : shape_(shape), rank_(rank), tasks_(tasks), trains_(trains) {
    // n tasks leave one missing among the first n + 1 that there should be. The bound keeps a wrong
    // shape from taking memory.
    made_.resize(std::min(index(shape.chunks, 0), tasks.size() + 1));
  }

  void check() {
    for (size_t place = 0; place < tasks_.size(); ++place) check_alone(place);
    for (size_t i = 0; i < made_.size(); ++i) check_complete(i);
    made_.assign(made_.size(), {});
    last_input_.assign(static_cast<size_t>(shape_.chunks), -1);
    last_weight_ = last_input_;
    for (size_t place = 0; place < tasks_.size(); ++place) check_order(place);
  }

 private:
  // Tasks of one chunk and microbatch that have been made.
  struct Made {
    bool forward = false, input = false, weight = false;

    bool has(nxd_pp_task_kind_t kind) const {
      return kind == NXD_PP_TASK_FORWARD       ? forward
             : kind == NXD_PP_TASK_WEIGHT_GRAD ? weight
                                               : input;
    }
    void add(nxd_pp_task_kind_t kind) {
      forward |= kind == NXD_PP_TASK_FORWARD;
      input |= kind == NXD_PP_TASK_BACKWARD || kind == NXD_PP_TASK_INPUT_GRAD;
      weight |= kind == NXD_PP_TASK_BACKWARD || kind == NXD_PP_TASK_WEIGHT_GRAD;
    }
  };

  size_t index(int chunk, int microbatch) const {
    return static_cast<size_t>(chunk) * static_cast<size_t>(shape_.microbatches) +
           static_cast<size_t>(microbatch);
  }

  void check_range(const PipelineTask& task, size_t place) const {
    check_argument(task.kind >= NXD_PP_TASK_FORWARD && task.kind <= NXD_PP_TASK_WEIGHT_GRAD,
                   "task ", place, " of rank ", rank_, ": expected an NXD_PP_TASK_*, got ",
                   task.kind);
    const auto check = [&](const char* what, int value, int end) {
      check_argument(value >= 0 && value < end, "task ", place, " of rank ", rank_, ", ",
                     task_name(task.kind), ": expected a ", what, " from 0 to ", end - 1, ", got ",
                     value);
    };
    check("chunk", task.chunk, shape_.chunks);
    check("microbatch", task.microbatch, shape_.microbatches);
  }

  void check_alone(size_t place) {
    const PipelineTask& task = tasks_[place];
    check_range(task, place);
    const size_t at = index(task.chunk, task.microbatch);
    if (at >= made_.size()) return;  // an earlier one is missing
    if (made_[at].has(task.kind)) reject(place, task, " once, got it twice");
    made_[at].add(task.kind);
  }

  void check_complete(size_t at) const {
    const Made& made = made_[at];
    if (made.forward && (!trains_ || (made.input && made.weight))) return;
    const auto microbatches = static_cast<size_t>(shape_.microbatches);
    PipelineTask missing{NXD_PP_TASK_FORWARD, static_cast<int>(at % microbatches),
                         static_cast<int>(at / microbatches)};
    if (made.forward && trains_) {
      missing.kind = made.input    ? NXD_PP_TASK_WEIGHT_GRAD
                     : made.weight ? NXD_PP_TASK_INPUT_GRAD
                                   : NXD_PP_TASK_BACKWARD;
    }
    fail(NXD_ERROR_INVALID_ARGUMENT, "tasks: expected ", describe(rank_, missing),
         ", which is missing");
  }

  void check_order(size_t place) {
    const PipelineTask& task = tasks_[place];
    Made& made = made_[index(task.chunk, task.microbatch)];
    const bool weight_only = task.kind == NXD_PP_TASK_WEIGHT_GRAD;
    if (task.kind != NXD_PP_TASK_FORWARD && !made.forward) {
      reject(place, task, " after its forward, got it before");
    }
    if (weight_only && !made.input) reject(place, task, " after its input gradient, got it before");
    made.add(task.kind);
    if (task.kind == NXD_PP_TASK_FORWARD) return;
    if (!weight_only) check_next(last_input_, task, place);
    if (task.kind != NXD_PP_TASK_INPUT_GRAD) check_next(last_weight_, task, place);
  }

  void check_next(std::vector<int>& last, const PipelineTask& task, size_t place) const {
    int& before = last[static_cast<size_t>(task.chunk)];
    if (before >= task.microbatch) {
      reject(place, task,
             text(" before that of microbatch ", before,
                  ": the gradients of a chunk are added up in the order of the microbatches"));
    }
    before = task.microbatch;
  }

  [[noreturn]] void reject(size_t place, const PipelineTask& task, const std::string& how) const {
    fail(NXD_ERROR_INVALID_ARGUMENT, "task ", place, ": expected ", describe(rank_, task), how);
  }

  const PipelineShape& shape_;
  int rank_;
  const std::vector<PipelineTask>& tasks_;
  bool trains_;
  std::vector<Made> made_;                     // of chunks and microbatches
  std::vector<int> last_input_, last_weight_;  // microbatch, of each chunk
};

bool has_backward_task(const TaskLists& tasks_by_rank) {
  return std::any_of(tasks_by_rank.begin(), tasks_by_rank.end(), [](const auto& tasks) {
    return std::any_of(tasks.begin(), tasks.end(),
                       [](const auto& task) { return task.kind != NXD_PP_TASK_FORWARD; });
  });
}

// Every rank that is not done waits for one other, so going from one to the next ends in a circle.
[[noreturn]] void reject_deadlock(const PipelineShape& shape, const TaskLists& tasks_by_rank,
                                  const std::vector<size_t>& made) {
  const auto waiting = [&](int rank) -> const PipelineTask& {
    return tasks_by_rank[static_cast<size_t>(rank)][made[static_cast<size_t>(rank)]];
  };
  int rank = 0;
  while (made[static_cast<size_t>(rank)] == tasks_by_rank[static_cast<size_t>(rank)].size()) ++rank;
  std::vector<bool> visited(made.size(), false);
  while (!visited[static_cast<size_t>(rank)]) {
    visited[static_cast<size_t>(rank)] = true;
    rank = shape.rank_of(source_of(shape, rank, waiting(rank)).stage);
  }
  constexpr int kMostShown = 8;
  std::string circle;
  const int first = rank;
  int shown = 0;
  do {
    const PipelineTask& task = waiting(rank);
    const StagePass source = source_of(shape, rank, task);
    const int other = shape.rank_of(source.stage);
    // On its own rank, or on another that has not come to it.
    const PipelineTask needed{source.forward ? NXD_PP_TASK_FORWARD : NXD_PP_TASK_BACKWARD,
                              source.microbatch, shape.chunk_of(source.stage)};
    if (shown < kMostShown) {
      circle += text(shown == 0 ? "" : "; ", describe(rank, task), " waits for ",
                     describe(other, needed), ", which comes later");
    }
    ++shown;
    rank = other;
  } while (rank != first);
  if (shown > kMostShown) circle += text("; and ", shown - kMostShown, " more");
  fail(NXD_ERROR_INVALID_ARGUMENT, "tasks: expected an order without deadlock, but ", circle);
}

}  // namespace

void verify_schedule(const PipelineShape& shape, const TaskLists& tasks_by_rank) {
  check_argument(tasks_by_rank.size() == static_cast<size_t>(shape.ranks),
                 "tasks: expected lists of ", shape.ranks, " ranks, got ", tasks_by_rank.size());
  const bool trains = has_backward_task(tasks_by_rank);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    RankVerifier(shape, rank, tasks_by_rank[static_cast<size_t>(rank)], trains).check();
  }
  const std::vector<size_t> made =
      walk_tasks(shape, tasks_by_rank, [](int, const PipelineTask&) {});
  for (size_t rank = 0; rank < made.size(); ++rank) {
    if (made[rank] < tasks_by_rank[rank].size()) reject_deadlock(shape, tasks_by_rank, made);
  }
}

}  // namespace nxd
