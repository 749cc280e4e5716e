#pragma once

#include <memory>
#include <vector>

#include "core/parallel/context.h"
#include "core/pipeline/stage_program.h"
#include "core/pipeline/timeline.h"

namespace nxd {

// Runs a rank's part of a schedule: receives what tasks need, ahead of them and into buffers that
// are kept from run to run; computes; sends without waiting. Messages go through the context's
// pipeline-parallel group.
class PipelineRunner {
 public:
  // Collective over the group. INVALID_ARGUMENT on all of its ranks when neighbours do not agree on
  // schedule, values, shapes or dtypes: the message names the two stages.
  PipelineRunner(std::shared_ptr<Context> context, std::shared_ptr<StageProgram> program,
                 std::shared_ptr<const Schedule> schedule);
  ~PipelineRunner();
  PipelineRunner(const PipelineRunner&) = delete;
  PipelineRunner& operator=(const PipelineRunner&) = delete;

  const Schedule& schedule() const;

  // Collective over the group. A failure that comes from a peer names task, microbatch, stage and
  // peer; the group is poisoned then, as after any failed message.
  void run();

  // Records what is done and when, from now on; null: no more.
  void set_timeline(std::shared_ptr<Timeline> timeline);

  // Bytes of the buffers for received values and gradients.
  uint64_t buffer_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nxd
