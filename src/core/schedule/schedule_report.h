#pragma once

#include <vector>

#include "core/schedule/schedule.h"

namespace nxd {

// Durations of each stage's passes of one microbatch, in any one unit.
struct PipelineCosts {
  std::vector<double> forward, backward_input, backward_weight;  // a whole backward takes both
  double transfer = 0;                                           // from one rank to another
};

// Checked costs for so many stages; see nxd_pp_costs_t for what null means in it.
PipelineCosts read_costs(const nxd_pp_costs_t& costs, int stages);

struct ScheduleReport {
  double makespan = 0;
  double critical_path = 0;
  double bubble_share = 0;
  int peak_activations = 0;
  int fullest_rank = 0;
  std::vector<double> end;            // of each rank: when it is done
  std::vector<double> busy;           // of each rank: in tasks
  std::vector<int> rank_activations;  // peak, of each rank
};

// Plays the schedule through: a rank begins a task as soon as it has made the one before and has
// received what it needs. In time of the tasks.
ScheduleReport report_schedule(const Schedule& schedule, const PipelineCosts& costs);

}  // namespace nxd
