#pragma once

#include <cerrno>
#include <chrono>
#include <ctime>

namespace nxd {

// Sleeps whatever signals come. std::this_thread::sleep_for goes on after each with what was left
// and the timer's slack: while signals come faster than that, as those by which a runtime ends a
// thread may, it never returns.
inline void sleep_for(std::chrono::nanoseconds length) noexcept {
  const std::chrono::nanoseconds end = std::chrono::steady_clock::now().time_since_epoch() + length;
  constexpr int64_t kSecond = 1'000'000'000;
  const timespec at{static_cast<time_t>(end.count() / kSecond),
                    static_cast<long>(end.count() % kSecond)};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

}  // namespace nxd
