#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace nxd {

// A century stands for no limit. Sums and multiples of it overflow neither an int64_t nor the
// clock.
constexpr int64_t kNeverMs = int64_t{100} * 365 * 24 * 3600 * 1000;

// A fraction of a timeout, or more than the whole: of any timeout up to INT64_MAX, and at most
// kNeverMs. Nothing else calculates with a caller's timeout.
constexpr int64_t timeout_share(int64_t timeout_ms, int64_t numerator, int64_t denominator) {
  return std::min(std::clamp<int64_t>(timeout_ms, 0, kNeverMs) * numerator / denominator, kNeverMs);
}

// A point in time by which something must have happened.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after_ms(int64_t ms) {
    return Deadline(Clock::now() + std::chrono::milliseconds(timeout_share(ms, 1, 1)));
  }

  bool expired() const { return Clock::now() >= at_; }
  // Rounded up, so that waiting this long never wakes before the deadline.
  int64_t remaining_ms() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return left > 0 ? left : 0;
  }
  Clock::time_point at() const { return at_; }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

// The clock's reading at its last tick, some milliseconds ago at most: for bounds and records of
// calls that take less time than reading the clock itself would be worth.
inline Deadline::Clock::time_point recent_time() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return Deadline::Clock::time_point(std::chrono::seconds(t.tv_sec) +
                                     std::chrono::nanoseconds(t.tv_nsec));
}

// Nanoseconds of the monotonic clock, which the processes of a host share.
inline int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             Deadline::Clock::now().time_since_epoch())
      .count();
}

inline int64_t ms_since(Deadline::Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - start)
      .count();
}

}  // namespace nxd
