#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>

#include "core/base/error.h"
#include "core/kernels/team.h"

namespace nxd::kernels {

// Calls body(begin, end) for ranges that cover 0 ... count: one range, or several for each thread
// of the team when the work (count times work_per_item, in elements touched or so) is worth waking
// a team for. The result of body for an item must not depend on the range: then nothing depends on
// the threads. One of several failures is thrown, when all ranges are done.
template <class Body>
void parallel_ranges(int64_t count, int64_t work_per_item, Body&& body) {
  constexpr int64_t kWorthATeam = 1 << 17;
  constexpr int64_t kRangesPerThread = 8;
  if (count <= 0) return;
  const int64_t work = count * work_per_item;
  const int threads = work < kWorthATeam ? 1 : team_size();
  if (threads <= 1 || count == 1) {
    body(int64_t{0}, count);
    return;
  }
  struct Region {
    Body& body;
    int64_t count, ranges;
    std::optional<Error> failure;
    std::mutex mutex;
  };
  const int64_t most = std::clamp<int64_t>(4 * work / kWorthATeam, threads,
                                           kRangesPerThread * static_cast<int64_t>(threads));
  Region region{body, count, std::min(count, most), std::nullopt, {}};
  const TeamTask task = [](void* context, int64_t index) {
    Region& all = *static_cast<Region*>(context);
    try {
      all.body(all.count * index / all.ranges, all.count * (index + 1) / all.ranges);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(all.mutex);
      all.failure = Error::current();
    }
  };
  run_on_team(threads, region.ranges, task, &region);
  if (region.failure) throw Error(*region.failure);
}

}  // namespace nxd::kernels
