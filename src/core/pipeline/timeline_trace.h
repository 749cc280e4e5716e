#pragma once

#include <string>
#include <vector>

#include "core/pipeline/timeline.h"

namespace nxd {

// Records as a trace in the Trace Event Format, which chrome://tracing and Perfetto read: a process
// is a rank, a thread is what happens there one after the other: tasks and waits, and the messages
// of each direction. Times start with the first event.
std::string timeline_trace(const std::vector<RankTimeline>& ranks);

}  // namespace nxd
