#pragma once

#include <string>

#include "core/optim/optimizer_state.h"
#include "core/optim/update_rule.h"

namespace nxd {

// Optimizer states as safetensors files that know no layout; see nxd_optimizer_save.

// Collective over the source's groups; the outcome is the same on all ranks. The first rank of all
// groups writes. sharded: each rank of the data group has some of every parameter. path may be
// null, which is rejected together with the peers; so are partially updated values, with the
// reason; "" when there are none.
void save_state(const char* path, ParameterSource& source, OptimizerState& state,
                const UpdateRule& rule, int64_t updates, bool sharded,
                const std::string& why_partial);

// Reads what this rank's spans need, and gives the number of updates. The state is changed once all
// has been read.
int64_t load_state(const std::string& path, ParameterSource& source, OptimizerState& state,
                   const UpdateRule& rule);

}  // namespace nxd
