#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/agree/proposal.h"
#include "core/pipeline/pipeline_runner.h"

namespace nxd {

// A schedule, the runner of its tasks over its stages, their timeline, and the loss, which is
// the last stage's until it is shared. Pipelines of callbacks and of modules have one.
class Pipeline {
 public:
  // Collective over the pipeline-parallel group. share_loss: every rank gets the loss of all
  // data-parallel ranks.
  Pipeline(std::shared_ptr<Context> context, std::shared_ptr<PipelineStages> stages,
           std::shared_ptr<const Schedule> schedule, bool share_loss);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // A run, and the loss of it that this rank is to be told. own_loss: on a rank that has it, after
  // the run. reduce: over data-parallel ranks. A rank whose run fails takes part in the sharing all
  // the same, so that it fails on the others too.
  double run(bool training, const std::function<double()>& own_loss, nxd_reduce_t reduce);
  // INVALID_STATE while a run goes on.
  void check_idle() const { runner_.check_idle(); }
  // Has the ranks of the pipeline agree on a run before it begins: those of one that trains would
  // take the messages of another run for its own. Where they do not, reject_loss() comes next.
  // Gives what agree() does.
  std::vector<bool> agree_on_run(const Proposal& proposal);
  // Tells the data-parallel ranks that wait for this pipeline's loss, after what they meet before.
  void reject_loss(const char* reason) const noexcept;
  // Values have other shapes from the next run on.
  void reshape() { runner_.reshape(); }

  bool has_loss() const;                           // this rank has the last stage
  ProcessGroup& group() const { return *group_; }  // of its stages
  const Schedule& schedule() const { return *schedule_; }
  const std::shared_ptr<const Schedule>& shared_schedule() const { return schedule_; }
  uint64_t buffer_bytes() const { return runner_.buffer_bytes(); }

  void set_timeline(bool on);
  // Collective over the world.
  void write_timeline(const char* path);

 private:
  double share(double loss, nxd_reduce_t reduce);
  void reject_sharing(const char* reason) noexcept;

  const std::shared_ptr<Context> context_;
  // Pipeline- and data-parallel: a layout that the context gets later is not this pipeline's.
  const std::shared_ptr<ProcessGroup> group_;
  // Data-parallel ranks share losses on it. On the layout's group reductions of gradients may be
  // under way, which begin at times that differ from rank to rank.
  const std::shared_ptr<ProcessGroup> data_;
  const std::shared_ptr<const Schedule> schedule_;
  const bool share_loss_;
  PipelineRunner runner_;
  std::shared_ptr<Timeline> timeline_;
};

}  // namespace nxd
