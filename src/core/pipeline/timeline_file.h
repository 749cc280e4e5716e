#pragma once

#include "core/pipeline/timeline.h"
#include "core/world/context.h"

namespace nxd {

// Writes on rank 0 of the world what the ranks of its pipeline recorded, as a trace (".json").
// Collective over the world; fails on all ranks alike. own: null where nothing was recorded.
void write_timeline(Context& context, const Timeline* own, const char* path);

}  // namespace nxd
