#pragma once

#include <string>
#include <vector>

#include "core/agree/outcome.h"
#include "core/pipeline/pipeline_stages.h"

namespace nxd {

// Values that the ranks of a pipeline must have in common.
struct PipelineSide {
  PipelineShape shape;
  std::string schedule;                                     // its name
  uint64_t schedule_hash = 0;                               // of all tasks
  std::vector<std::vector<PipelineValue>> inputs, outputs;  // of each chunk
  bool shares_loss = false;

  static PipelineSide of(const Schedule& schedule, const PipelineStages& stages, bool shares_loss);
};

// A difference among these, by rank of the pipeline; "" for none. A pure function, so that ranks
// that have the same sides come to the same answer. world_ranks: for the message.
std::string find_disagreement(const std::vector<PipelineSide>& sides,
                              const std::vector<int>& world_ranks);

// Compares what the ranks of a pipeline's group bring. INVALID_ARGUMENT on all of them, with one
// message, when they do not agree. One that rejects takes part all the same, and brings its
// outcome.
void agree_on_pipeline(ProcessGroup& group, const PipelineSide& own, const Outcome& outcome);

}  // namespace nxd
