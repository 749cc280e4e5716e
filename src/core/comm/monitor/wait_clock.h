#pragma once

#include <algorithm>
#include <atomic>

#include "core/comm/net/deadline.h"

namespace nxd {

// Accounts for the wait of a thread for a call that goes on by itself. A call that was started long
// before its result is needed has time until then. Its bound counts from the beginning of the wait,
// and only from then on does its rank wait for a peer. So a rank that computes on and on is not
// taken for one that waits, and peers that time out find that it is to blame.
class WaitClock {
 public:
  // A waiter comes and goes. One at a time; a second one does not count.
  void begin() noexcept { since_ns_.store(monotonic_ns(), std::memory_order_release); }
  void end() noexcept { since_ns_.store(0, std::memory_order_release); }

  // The time for which a call that began at start has been waited for; 0 without a waiter.
  int64_t ms_since(Deadline::Clock::time_point start) const noexcept {
    const int64_t since_ns = since_ns_.load(std::memory_order_acquire);
    if (since_ns == 0) return 0;
    const Deadline::Clock::time_point since{
        std::chrono::duration_cast<Deadline::Clock::duration>(std::chrono::nanoseconds(since_ns))};
    return nxd::ms_since(std::max(start, since));
  }

  // For the call that this thread carries out; null when its bound counts from its beginning.
  static const WaitClock* current() noexcept;

 private:
  std::atomic<int64_t> since_ns_{0};
};

// Makes a clock this thread's while the thread carries out the call; null: none.
class WaitClockScope {
 public:
  explicit WaitClockScope(const WaitClock* clock) noexcept;
  ~WaitClockScope();
  WaitClockScope(const WaitClockScope&) = delete;
  WaitClockScope& operator=(const WaitClockScope&) = delete;
};

}  // namespace nxd
