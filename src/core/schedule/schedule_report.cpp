#include "core/schedule/schedule_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/schedule/task_walk.h"

namespace nxd {
namespace {

std::vector<double> read_durations(const double* given, int stages, const char* name,
                                   const std::vector<double>& otherwise) {
  if (!given) return otherwise;
  std::vector<double> durations(given, given + stages);
  for (size_t stage = 0; stage < durations.size(); ++stage) {
    check_argument(std::isfinite(durations[stage]) && durations[stage] >= 0, "costs->", name, "[",
                   stage, "]: expected a duration of at least 0, got ", durations[stage]);
  }
  return durations;
}

// When the forward or the backward pass of each stage and microbatch ends: on the ranks, and with
// as many processors as there are tasks.
struct Ends {
  explicit Ends(size_t passes) : played(passes), unlimited(passes) {}
  std::vector<double> played, unlimited;
};

class Player {
 public:
  Player(const Schedule& schedule, const PipelineCosts& costs)
      : shape_(schedule.shape()),
        costs_(costs),
        trains_(schedule.has_backward()),
        forward_(pass_index(shape_, shape_.stages(), 0)),
        backward_(trains_ ? pass_index(shape_, shape_.stages(), 0) : 0),
        clock_(static_cast<size_t>(shape_.ranks), 0.0),
        kept_(clock_.size(), 0) {
    report_.busy.assign(clock_.size(), 0.0);
    report_.rank_activations.assign(clock_.size(), 0);
  }

  void play(int rank, const PipelineTask& task) {
    const auto r = static_cast<size_t>(rank);
    const int stage = shape_.stage_of(rank, task.chunk);
    const size_t pass = pass_index(shape_, stage, task.microbatch);
    const double cost = cost_of(stage, task.kind);
    const StagePass source = source_of(shape_, rank, task);
    double start = clock_[r], unlimited = own_input(pass, task.kind);
    if (source.stage >= 0) {
      const Ends& ends = source.forward ? forward_ : backward_;
      const size_t from = pass_index(shape_, source.stage, source.microbatch);
      const double transfer = shape_.rank_of(source.stage) == rank ? 0.0 : costs_.transfer;
      start = std::max(start, ends.played[from] + transfer);
      unlimited = std::max(unlimited, ends.unlimited[from] + transfer);
    }
    clock_[r] = start + cost;
    report_.busy[r] += cost;
    report_.critical_path = std::max(report_.critical_path, unlimited + cost);
    if (task.kind != NXD_PP_TASK_WEIGHT_GRAD) {
      Ends& ends = task.kind == NXD_PP_TASK_FORWARD ? forward_ : backward_;
      ends.played[pass] = start + cost;
      ends.unlimited[pass] = unlimited + cost;
    }
    count_activations(r, task.kind);
  }

  ScheduleReport finish() {
    report_.makespan = *std::max_element(clock_.begin(), clock_.end());
    double busy = 0;
    for (const double b : report_.busy) busy += b;
    const double all = report_.makespan * shape_.ranks;
    report_.bubble_share = all > 0 ? std::max(0.0, (all - busy) / all) : 0;
    const auto fullest =
        std::max_element(report_.rank_activations.begin(), report_.rank_activations.end());
    report_.peak_activations = *fullest;
    report_.fullest_rank = static_cast<int>(fullest - report_.rank_activations.begin());
    report_.end = std::move(clock_);
    return std::move(report_);
  }

 private:
  double cost_of(int stage, nxd_pp_task_kind_t kind) const {
    const auto s = static_cast<size_t>(stage);
    switch (kind) {
      case NXD_PP_TASK_FORWARD: return costs_.forward[s];
      case NXD_PP_TASK_INPUT_GRAD: return costs_.backward_input[s];
      case NXD_PP_TASK_WEIGHT_GRAD: return costs_.backward_weight[s];
      default: return costs_.backward_input[s] + costs_.backward_weight[s];
    }
  }

  // When the pass of the same stage and microbatch that the task needs ends.
  double own_input(size_t pass, nxd_pp_task_kind_t kind) const {
    if (kind == NXD_PP_TASK_FORWARD) return 0;
    return (kind == NXD_PP_TASK_WEIGHT_GRAD ? backward_ : forward_).unlimited[pass];
  }

  // Operands of a weight gradient are kept until it is made.
  void count_activations(size_t rank, nxd_pp_task_kind_t kind) {
    if (!trains_ || kind == NXD_PP_TASK_INPUT_GRAD) return;
    int& kept = kept_[rank];
    kept += kind == NXD_PP_TASK_FORWARD ? 1 : -1;
    report_.rank_activations[rank] = std::max(report_.rank_activations[rank], kept);
  }

  const PipelineShape& shape_;
  const PipelineCosts& costs_;
  bool trains_;
  Ends forward_, backward_;
  std::vector<double> clock_;  // of each rank
  std::vector<int> kept_;
  ScheduleReport report_;
};

}  // namespace

PipelineCosts read_costs(const nxd_pp_costs_t& costs, int stages) {
  PipelineCosts out;
  const std::vector<double> ones(static_cast<size_t>(stages), 1.0);
  out.forward = read_durations(costs.forward, stages, "forward", ones);
  out.backward_input = read_durations(costs.backward_input, stages, "backward_input", out.forward);
  out.backward_weight =
      read_durations(costs.backward_weight, stages, "backward_weight", out.forward);
  check_argument(std::isfinite(costs.transfer) && costs.transfer >= 0,
                 "costs->transfer: expected a duration of at least 0, got ", costs.transfer);
  out.transfer = costs.transfer;
  return out;
}

ScheduleReport report_schedule(const Schedule& schedule, const PipelineCosts& costs) {
  Player player(schedule, costs);
  walk_tasks(schedule.shape(), schedule.tasks(),
             [&](int rank, const PipelineTask& task) { player.play(rank, task); });
  return player.finish();
}

}  // namespace nxd
