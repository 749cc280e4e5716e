#pragma once

#include <vector>

#include "core/schedule/schedule.h"

namespace nxd {

// The kind itself, or what DEFAULT means for the shape. INVALID_ARGUMENT for a shape that the kind
// does not admit.
nxd_pp_schedule_kind_t resolve_schedule(nxd_pp_schedule_kind_t kind, const PipelineShape& shape);

// A rank's tasks in order, in time and memory of these alone. The kind has been checked.
std::vector<PipelineTask> build_rank_tasks(nxd_pp_schedule_kind_t kind, const PipelineShape& shape,
                                           int rank);

// Activations of one microbatch in one chunk that the rank keeps at once at most, in O(1): what
// report_schedule finds by playing. 0 where there are no backward passes.
int most_activations(nxd_pp_schedule_kind_t kind, const PipelineShape& shape, int rank);

// Such as "1F1B".
const char* schedule_name(nxd_pp_schedule_kind_t kind);

}  // namespace nxd
