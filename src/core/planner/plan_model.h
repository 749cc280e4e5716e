#pragma once

#include <vector>

#include "core/model/model_sizes.h"
#include "nxd.h"

namespace nxd {

// Sizes with their defaults filled in. INVALID_ARGUMENT names the field that is missing
// or out of range.
ModelSizes read_plan_model(const nxd_plan_model_t& given);

// The same as a caller has them.
nxd_plan_model_t plan_model_of(const ModelSizes& sizes);

// How many layers each stage has. The embedding belongs to the first and the head to the last,
// which by COST may have no layer: the rules of even_cuts and cost_cuts in
// engine/graph/partition.h, with their counts of operations.
std::vector<int> stage_layers(const ModelSizes& model, nxd_pp_partition_t partition, int stages,
                              int64_t sequence);

}  // namespace nxd
