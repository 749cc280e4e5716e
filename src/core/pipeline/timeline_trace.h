#pragma once

#include <string>
#include <vector>

#include "core/pipeline/timeline.h"

namespace nxd {

// Records as a trace in the Trace Event Format, which chrome://tracing and Perfetto read. A process
// is a rank. Its threads are tasks and waits, and the messages of each direction. Times start with
// the first event.
std::string timeline_trace(const std::vector<RankTimeline>& ranks);

}  // namespace nxd
