#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/pipeline/pipeline_stages.h"
#include "core/pipeline/timeline.h"
#include "core/world/context.h"

namespace nxd {

// Runs a rank's part of a schedule: receives what tasks need, ahead of them and into buffers that
// are kept from run to run; computes; sends without waiting. Messages go through the context's
// pipeline-parallel group.
//
// A run that fails on one rank ends on all that still have to do with it. In place of each message
// that it does not send or receive any more, a rank gives its neighbours the reason, and they
// theirs. When run() has returned all messages have ended: buffers are free, and the next run may
// begin unless the group itself has failed.
class PipelineRunner {
 public:
  // Collective over the group. INVALID_ARGUMENT on all of its ranks when neighbours do not agree on
  // schedule, values, shapes or dtypes, or on what becomes of the loss: the message names the two.
  PipelineRunner(std::shared_ptr<Context> context, std::shared_ptr<PipelineStages> stages,
                 std::shared_ptr<const Schedule> schedule, bool shares_loss = false);
  ~PipelineRunner();
  PipelineRunner(const PipelineRunner&) = delete;
  PipelineRunner& operator=(const PipelineRunner&) = delete;

  // Within a handler, on a rank that cannot go on: takes part in the constructor that the other
  // ranks of the group are in, and makes it fail there.
  static void reject(const Context& context) noexcept;

  const Schedule& schedule() const;
  // The stages' values have changed. Collective over the group, and fails as the constructor.
  void reshape();

  // Without training, forwards alone, in an order of their own. Collective over the group. A
  // failure names the task, its microbatch and stage, and the awaited rank; one that comes from a
  // peer's task has that one's status and tells of it. TIMEOUT and PEER_LOST poison the group, as
  // after any failed message.
  void run(bool training = true);
  // INVALID_STATE while a run goes on, as within its callbacks.
  void check_idle() const;

  // Records what is done and when, from now on; null: no more.
  void set_timeline(std::shared_ptr<Timeline> timeline);

  // Bytes of the buffers for received values and gradients: as many as the schedule needs at once,
  // and more only where the stages keep them for longer.
  uint64_t buffer_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nxd
