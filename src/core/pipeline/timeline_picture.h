#pragma once

#include <string>
#include <vector>

#include "core/pipeline/timeline.h"

namespace nxd {

// Records as a picture (SVG): a row for each rank, a box for each task with the number of its
// microbatch, coloured by what it computes and the darker the later its chunk; waits are hatched.
// Below an axis in milliseconds and a legend.
std::string timeline_picture(const std::vector<RankTimeline>& ranks);

}  // namespace nxd
