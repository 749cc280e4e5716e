#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/agree/outcome.h"
#include "core/world/context.h"

namespace nxd {

// Valid labels of each microbatch divided by those of the whole step; see nxd_loss_weights.
// Undefined labels count none. Collective over the group, whose ranks are data-parallel ones and
// hear of this one's labels that were not `given`.
std::vector<double> loss_weights(ProcessGroup& group, const std::vector<at::Tensor>& labels,
                                 int64_t ignore_index, bool shifted, const Outcome& given = {});
// The same over the data-parallel group of the context's layout, where there is one.
std::vector<double> loss_weights(const Context& context, const std::vector<at::Tensor>& labels,
                                 int64_t ignore_index, bool shifted, const Outcome& given = {});

}  // namespace nxd
