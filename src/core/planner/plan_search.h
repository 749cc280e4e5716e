#pragma once

#include <vector>

#include "core/model/model_sizes.h"
#include "nxd.h"

namespace nxd {

struct FoundPlan {
  nxd_plan_layout_t layout;
  nxd_plan_prediction_t prediction;
};

// Bounds of the layouts that are looked for; see nxd_plan_search.
struct PlanSearchOptions {
  int32_t world_size = 0;
  int32_t sequence_length = 0;
  int64_t batch_size = 0;
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  int32_t max_virtual_size = 4;
};

// The `count` layouts whose predicted steps are shortest, of those that fit; see nxd_plan_search.
// Model and machine have been read. INVALID_ARGUMENT names the option that is missing or out of
// range.
std::vector<FoundPlan> search_plans(const ModelSizes& model, const nxd_plan_machine_t& machine,
                                    const PlanSearchOptions& options, size_t count);

}  // namespace nxd
