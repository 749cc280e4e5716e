#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/pipeline/pipeline_runner.h"

namespace nxd {

// The object behind an nxd_pp_t, for any kind of stages: a runner, its timeline, and the loss,
// which is the last stage's until it is shared.
class Pipeline {
 public:
  // share_loss: every rank gets the loss of all data-parallel ranks.
  Pipeline(std::shared_ptr<Context> context, bool share_loss);
  virtual ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // nxd_pp_run. INVALID_STATE for stages that need more than that to run.
  virtual double run(bool training);

  bool has_loss() const;  // this rank has the last stage
  nxd_pp_schedule* schedule() { return &schedule_; }
  uint64_t buffer_bytes() const { return runner_->buffer_bytes(); }

  void set_timeline(bool on);
  // Collective over the world.
  void write_timeline(const char* path);

 protected:
  const std::shared_ptr<Context>& context() const { return context_; }
  // Collective over the pipeline-parallel group.
  void make_runner(std::shared_ptr<StageProgram> program, std::shared_ptr<const Schedule> schedule);
  PipelineRunner& runner() const { return *runner_; }

  // A run, and the loss of it that this rank is to be told. own_loss: on a rank that has it, after
  // the run. reduce: over data-parallel ranks. A rank whose run fails takes part in the sharing all
  // the same, so that it fails on the others too.
  double run_and_share(bool training, const std::function<double()>& own_loss, nxd_reduce_t reduce);

 private:
  double share(double loss, nxd_reduce_t reduce);
  void reject_sharing(const char* reason) noexcept;

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<ProcessGroup> group_;  // pipeline-parallel
  const bool share_loss_;
  std::unique_ptr<PipelineRunner> runner_;
  nxd_pp_schedule schedule_;  // for borrowers
  std::shared_ptr<Timeline> timeline_;
};

}  // namespace nxd

struct nxd_pp {
  std::shared_ptr<nxd::Pipeline> value;
};
