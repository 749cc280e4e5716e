#pragma once

#include "core/comm/process_group.h"
#include "core/pipeline/timeline.h"

namespace nxd {

// Writes on rank 0 of the world what the ranks of its pipeline recorded, as a trace (".json").
// Collective over the world; fails on all ranks alike. own: null where nothing was recorded.
void write_timeline(ProcessGroup& world, const ProcessGroup& pipeline, const Timeline* own,
                    const char* path);

}  // namespace nxd
