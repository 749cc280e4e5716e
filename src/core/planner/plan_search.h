#pragma once

#include <vector>

#include "core/model/model_sizes.h"
#include "nxd.h"

namespace nxd {

struct FoundPlan {
  nxd_plan_layout_t layout;
  nxd_plan_prediction_t prediction;
};

// A caller's options with their defaults filled in. INVALID_ARGUMENT names the field that is
// missing or out of range.
nxd_plan_search_options_t read_plan_search(const nxd_plan_search_options_t* given);

// The `count` layouts whose predicted steps are shortest, of those that fit; see nxd_plan_search.
// Model and machine have been read.
std::vector<FoundPlan> search_plans(const ModelSizes& model, const nxd_plan_machine_t& machine,
                                    const nxd_plan_search_options_t& options, size_t count);

}  // namespace nxd
