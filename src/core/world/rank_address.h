#pragma once

#include <string>

#include "core/world/rendezvous.h"

namespace nxd {

// The address that the other ranks of the world reach this one at. interface_name: a network
// interface or an address of this host, or "" for one that is found. INVALID_ARGUMENT where it is
// neither, IO where there is none.
std::string rank_address(const std::string& interface_name, const WorldFacts& world,
                         const RankInfo& rank_info);

}  // namespace nxd
