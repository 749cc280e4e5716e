#pragma once

#include <string>
#include <vector>

#include "core/agree/outcome.h"

namespace nxd {

// Waits for all ranks of a group at the place of this name, and gives what each has brought, by
// rank. All ranks fail together where their tags differ, or where one brings an outcome that is not
// good. Collective.
std::vector<std::string> rendezvous(ProcessGroup& group, const std::string& tag,
                                    const std::string& payload, const Outcome& outcome);

}  // namespace nxd
