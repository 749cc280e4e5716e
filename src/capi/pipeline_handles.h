#pragma once

// Handles of schedules and of pipelines, of either library. One of two computes a pipeline's
// stages.
#include <memory>
#include <utility>

#include "core/pipeline/callback_pipeline.h"

namespace nxd {
class ModulePipeline;
}

struct nxd_pp_schedule {
  std::shared_ptr<const nxd::Schedule> value;
};

struct nxd_pp {
  explicit nxd_pp(std::shared_ptr<nxd::CallbackPipeline> made)
      : pipeline(made->pipeline()),
        schedule{pipeline.shared_schedule()},
        callbacks(std::move(made)) {}
  nxd_pp(std::shared_ptr<nxd::ModulePipeline> made, nxd::Pipeline& its)
      : pipeline(its), schedule{pipeline.shared_schedule()}, modules(std::move(made)) {}

  nxd::Pipeline& pipeline;   // of the one that there is
  nxd_pp_schedule schedule;  // for borrowers
  std::shared_ptr<nxd::CallbackPipeline> callbacks;
  std::shared_ptr<nxd::ModulePipeline> modules;
};
