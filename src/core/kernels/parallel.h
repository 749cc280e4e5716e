#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>

#include "core/base/error.h"
#include "core/kernels/team.h"

namespace nxd::kernels {

// A region of this many elements touched or so is worth waking a team for.
constexpr int64_t kWorthATeam = 1 << 17;

// Calls body(index) for each index below tasks, on the team, which takes the last index first. One
// of several failures is thrown, when all tasks are done.
template <class Body>
void run_tasks(int threads, int64_t tasks, Body&& body) {
  struct Region {
    Body& body;
    std::optional<Error> failure;
    std::mutex mutex;
  };
  Region region{body, std::nullopt, {}};
  const TeamTask task = [](void* context, int64_t index) {
    Region& all = *static_cast<Region*>(context);
    try {
      all.body(index);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(all.mutex);
      all.failure = Error::current();
    }
  };
  run_on_team(threads, tasks, task, &region);
  if (region.failure) throw Error(*region.failure);
}

// Calls body(begin, end) for ranges that cover 0 ... count: one range, or several for each thread
// of the team when the work (count times work_per_item, in elements touched or so) is worth it. The
// result of body for an item must not depend on the range: then nothing depends on the threads.
template <class Body>
void parallel_ranges(int64_t count, int64_t work_per_item, Body&& body) {
  constexpr int64_t kRangesPerThread = 8;
  if (count <= 0) return;
  const int64_t work = count * work_per_item;
  const int threads = work < kWorthATeam ? 1 : team_size();
  if (threads <= 1 || count == 1) {
    body(int64_t{0}, count);
    return;
  }
  const int64_t most = std::clamp<int64_t>(4 * work / kWorthATeam, threads,
                                           kRangesPerThread * static_cast<int64_t>(threads));
  const int64_t ranges = std::min(count, most);
  run_tasks(threads, ranges,
            [&](int64_t index) { body(count * index / ranges, count * (index + 1) / ranges); });
}

// Calls body(item) for 0 ... count, each as a task of its own. Items are taken in this order, so
// one may wait for those before it. Where one fails the others are called all the same.
template <class Body>
void ordered_tasks(int64_t count, int64_t work_per_item, Body&& body) {
  const int threads = count * work_per_item < kWorthATeam ? 1 : team_size();
  if (threads > 1 && count > 1) {
    run_tasks(threads, count, [&](int64_t index) { body(count - 1 - index); });
    return;
  }
  for (int64_t item = 0; item < count; ++item) body(item);
}

}  // namespace nxd::kernels
