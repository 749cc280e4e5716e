#pragma once

#include <string>
#include <vector>

#include "core/world/context.h"
#include "engine/module/module.h"
#include "engine/module/module_tree.h"

namespace nxd {

// Why a tree's parameters are not those of a layout: they were made in another one, and the ranks
// of this one do not have all of their parts, or have other parts where they are to have copies. ""
// where they are, as replicated parameters always are.
std::string why_other_layout(const Module& root, const std::vector<NamedParameter>& parameters,
                             const ParallelState& layout);

}  // namespace nxd
