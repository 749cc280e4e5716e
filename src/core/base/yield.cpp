#include "core/base/yield.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

namespace nxd {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Ranks that wait, too, give the core back within microseconds.
constexpr auto kLate = std::chrono::microseconds(600);
constexpr Clock::duration kShortestPause = milliseconds(10);
constexpr Clock::duration kLongestPause = std::chrono::seconds(2);

struct Pause {
  Clock::time_point end;
  Clock::duration length{0};
};
thread_local Pause pause;

}  // namespace

bool try_yield() noexcept {
  const auto start = Clock::now();
  if (start < pause.end) return false;
  ::sched_yield();
  const auto now = Clock::now();
  if (now - start < kLate) return true;
  const bool late_again = start - pause.end < pause.length;
  pause.length = late_again ? std::min(2 * pause.length, kLongestPause) : kShortestPause;
  pause.end = now + pause.length;
  return false;
}

}  // namespace nxd
