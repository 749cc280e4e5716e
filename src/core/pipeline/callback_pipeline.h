#pragma once

#include <memory>

#include "core/pipeline/callback_stages.h"
#include "core/pipeline/pipeline.h"

namespace nxd {

struct CallbackPipelineOptions {
  int microbatches = 1, chunks = 1;
  nxd_pp_schedule_kind_t schedule = NXD_PP_SCHEDULE_DEFAULT;
  std::shared_ptr<const Schedule> custom_schedule;  // instead; null: none
  bool share_loss = false;
};

// A pipeline of a caller's stages: nxd_pp_create_callbacks.
class CallbackPipeline {
 public:
  // Arguments as of nxd_pp_create_callbacks, options and callbacks read. Collective over the
  // pipeline-parallel group; a rank whose arguments are bad fails on all of them.
  static std::shared_ptr<CallbackPipeline> create(
      std::shared_ptr<Context> context, const CallbackPipelineOptions& options,
      const nxd_pp_value_t* inputs, const size_t* n_inputs, const nxd_pp_value_t* outputs,
      const size_t* n_outputs, const nxd_pp_stage_callbacks_t& callbacks);

  // training: 0 or 1, as a caller gives it. A rank that gives another fails on all of the pipeline.
  double run(int32_t training);
  Pipeline& pipeline() { return pipeline_; }

 private:
  CallbackPipeline(std::shared_ptr<Context> context, std::shared_ptr<CallbackStages> stages,
                   std::shared_ptr<const Schedule> schedule, bool share_loss);

  const int world_rank_;
  std::shared_ptr<CallbackStages> stages_;
  Pipeline pipeline_;
};

}  // namespace nxd
