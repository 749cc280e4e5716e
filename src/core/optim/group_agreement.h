#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/comm/process_group.h"

namespace nxd {

// A value that all ranks of some groups must have given alike, such as an option.
struct AgreedValue {
  const char* name;
  double value;  // not NaN
};

// Compares what ranks were called with, over one group after another, before anything is changed.
// Every rank of the groups takes part, also one that has found its own arguments bad: it brings the
// reason as own_error ("" for none) and all ranks fail together, so that none waits for another.
// Failures are INVALID_ARGUMENT. Groups of one rank cost nothing.
void agree(const std::vector<ProcessGroup*>& groups, int world_rank,
           const std::vector<AgreedValue>& values, const std::string& own_error);

}  // namespace nxd
