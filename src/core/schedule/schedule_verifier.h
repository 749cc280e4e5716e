#pragma once

#include <vector>

#include "core/schedule/schedule.h"

namespace nxd {

// Verifies that the tasks can be run, in time of their number. INVALID_ARGUMENT where
//   - a task is out of range, doubled or missing: every rank makes the forward pass of each of its
//     chunks and microbatches once and, if any rank has a backward task at all, the backward pass
//     once, whole or in two parts;
//   - a pass comes before the one on the same rank that it needs;
//   - the gradients of a chunk are not formed in the order of the microbatches, which is what gives
//     their sums the same bits in every schedule;
//   - ranks that make their tasks in order, send without waiting and wait for what they receive
//     would wait for one another for ever: the message lists the tasks of one such circle.
// The shape has been checked.
void verify_schedule(const PipelineShape& shape,
                     const std::vector<std::vector<PipelineTask>>& tasks_by_rank);

}  // namespace nxd
