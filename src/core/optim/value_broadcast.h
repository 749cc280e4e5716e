#pragma once

#include "core/optim/parameter_source.h"

namespace nxd {

// Gives the parameters of all ranks the values of the group's first. Ranks have the same
// parameters. Collective over the group.
void broadcast_values(ParameterSource& source, ProcessGroup& group);

}  // namespace nxd
